"""TensorRT for RTX: networks built on the user's own GeForce or RTX card, in seconds."""

from model_optimizer.core import (
    Host,
    Launch,
    Link,
    ModelSpec,
    Plan,
    Scheme,
    Setting,
    Term,
    UsageError,
    Workload,
)
from model_optimizer.core.site import Ability, Offer, Site
from model_optimizer.facts import tensorrt as facts

from . import _gpu as g
from . import _litserve

TITLE = "TensorRT for RTX"
READS = {"onnx": frozenset({"fp32", "fp16", "bf16", "int8", "int8_weight", "int4_rtn", "fp8", "nvfp4"})}
TASKS = frozenset({"embed", "rerank", "vision"})
DEVICES = frozenset({"gpu"})
ENVIRONMENT = "tensorrt_rtx"
BASELINE = False
MEMORY = "own"
ONE_PROCESS = True
SERVES = {"tensorrt_rtx_engine": READS["onnx"]}
"""What our server runs: a folder with the engine that `mopt convert` built. A plan names the graph before."""

TAKES = _litserve.ENGINES
KEY = _litserve.KEY
PACKAGE = "tensorrt-rtx-cu13-bindings"
PRECISIONS = {
    "fp16": "fp16", "bf16": "bf16", "int8_weight": "int8_weight_only", "int4_rtn": "int4_weight_only",
    "fp8": "fp8", "nvfp4": "fp4",
}  # fmt: skip


def memory(model: ModelSpec, scheme: Scheme, work: Workload) -> tuple[Term, ...]:
    return g.memory(model, scheme, work)


def settings(model: ModelSpec, scheme: Scheme, work: Workload, host: Host) -> tuple[Setting, ...]:
    del scheme
    return g.settings(model, work, host, {"context": "max_model_len", "batch": "max_batch_size"})


def launch(plan: Plan, port: int) -> Launch:
    """Our worker around the engine that is built from what the plan names."""
    return _litserve.launch(plan, port, "tensorrt_rtx", {})


def command(plan: Plan, port: int = 8000) -> tuple[str, ...]:
    """The build, with the builder's own program."""
    del port
    folder = plan.checkpoint.rstrip("/")
    return (
        "tensorrt_rtx", f"--onnx={folder}/model.onnx", f"--saveEngine={folder}/model.plan",
        *g.network_shapes(plan),
    )  # fmt: skip


def container(plan: Plan, port: int = 8000) -> tuple[str, ...]:
    raise UsageError(
        "TensorRT for RTX has no image",
        hint=("take `--emit tensorrt_rtx` and run it on the machine with the card",),
    )


def versions() -> tuple[str, ...]:
    return facts.rtx_versions()


def offer(model: ModelSpec, site: Site, version: str) -> Offer:
    release = facts.rtx_release(version)
    source = f"facts/compatibility/tensorrt_rtx/{release.version}"
    vendor = g.vendor_link(site)
    decoder = any(group.kv_bytes_per_token_16 for group in model.groups)
    says = (
        f"{model.architecture} is {'a decoder: its export was not tried here' if decoder else 'one network'}"
    )
    links = [Link(name="architecture", holds=not decoder, says=says, source="config.json")]
    if vendor:
        return Offer(version=version, exact=release.exact, links=(*links, vendor))
    have = site.compute_capability or (0, 0)
    built = ", ".join(g.dotted(c) for c in release.compute_capabilities)
    kind = f"{g.dotted(have)}" if not site.server else f"{g.dotted(have)}, and no GeForce or RTX card"
    links.append(
        Link(
            name="gpu",
            holds=have in release.compute_capabilities and not site.server,
            says=f"TensorRT for RTX {version} builds for RTX cards of {built}; {site.gpu} is {kind}",
            source=source,
        )
    )
    links.append(g.driver_link(site, "13.0", source))
    return Offer(version=version, exact=release.exact, cuda="13.0", links=tuple(links))


def ability(scheme: Scheme, site: Site, version: str) -> Ability:
    release = facts.rtx_release(version)
    source = f"facts/compatibility/tensorrt_rtx/{release.version}"
    have = site.compute_capability or (0, 0)
    if scheme.name == "int8":
        return Ability(
            how="native",
            because="INT8 with quantize and dequantize nodes in the network, from 7.5 to 12.x",
            source="facts/compatibility/engine_limits/tensorrt_rtx",
        )
    if scheme.name not in PRECISIONS:
        return Ability(how="native", because="32 bits run everywhere", source=source)
    least = release.precisions[PRECISIONS[scheme.name]]
    if have < least:
        return Ability(
            how="no",
            because=f"{scheme.name} starts at compute capability "
            f"{g.dotted(least)}, {site.gpu} has {g.dotted(have)}",
            source=source,
        )
    how = "weight-only" if scheme.activation_bits == 16 and scheme.weight_bits < 16 else "native"
    return Ability(
        how=how, because=f"{scheme.name} from compute capability {g.dotted(least)} on", source=source
    )

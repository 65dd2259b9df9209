"""TensorRT: an ONNX network built for one GPU. For encoders and vision; language models have TensorRT-LLM."""

import re

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
from model_optimizer.facts.versions import key

from . import _gpu as g
from . import _litserve

TITLE = "TensorRT"
READS = {"onnx": frozenset({"fp32", "fp16", "bf16", "int8", "fp8"})}
TASKS = frozenset({"embed", "rerank", "vision"})
DEVICES = frozenset({"gpu"})
ENVIRONMENT = "tensorrt"
BASELINE = False
MEMORY = "own"
ONE_PROCESS = True
SERVES = {"tensorrt_engine": READS["onnx"] | {"int4_rtn"}}
"""What our server runs: a folder with the engine that `mopt convert` built. A plan names the graph before."""

TAKES = _litserve.ENGINES
KEY = _litserve.KEY
PACKAGE = "tensorrt-cu13-bindings"


def memory(model: ModelSpec, scheme: Scheme, work: Workload) -> tuple[Term, ...]:
    return g.memory(model, scheme, work)


def settings(model: ModelSpec, scheme: Scheme, work: Workload, host: Host) -> tuple[Setting, ...]:
    del scheme
    return g.settings(model, work, host, {"context": "max_model_len", "batch": "max_batch_size"})


def launch(plan: Plan, port: int) -> Launch:
    """Our worker around an engine; of a graph, Triton's server with the folder of the built network."""
    if plan.format in SERVES:
        return _litserve.launch(plan, port, "tensorrt", {})
    words = ["--model-repository", plan.checkpoint]
    words += ["--http-address", g.listening(plan), "--http-port", str(port)]
    return g.launch(plan, words, ENVIRONMENT, program="tritonserver")


def command(plan: Plan, port: int = 8000) -> tuple[str, ...]:
    """The build: precision is that of the network since TensorRT 11, so there is no flag for it."""
    del port
    folder = plan.checkpoint.rstrip("/")
    return (
        "trtexec", f"--onnx={folder}/model.onnx", f"--saveEngine={folder}/model.plan",
        *g.network_shapes(plan),
    )  # fmt: skip


def container(plan: Plan, port: int = 8000) -> tuple[str, ...]:
    raise UsageError(
        "no image of TensorRT is in the facts",
        cause=("its wheels bring the libraries, and trtexec is not in them",),
        hint=("take `--emit tensorrt` and run it where TensorRT is installed",),
    )


def versions() -> tuple[str, ...]:
    """From 10.0 on; older ones build no network that is exported today."""
    return tuple(v for v in facts.versions() if key(v) >= key("10.0"))


def offer(model: ModelSpec, site: Site, version: str) -> Offer:
    release = facts.release(version)
    source = f"facts/compatibility/tensorrt/{release.version}"
    links = [_network(model)]
    vendor = g.vendor_link(site)
    if vendor:
        return Offer(version=version, exact=release.exact, links=(*links, vendor))
    least = release.minimum_compute_capability or (7, 5)
    links.append(
        g.capability_link(
            site, least, f"TensorRT {version}", source, maximum=release.maximum_compute_capability
        )
    )
    cuda = _cuda(release)
    if cuda:
        links.append(g.driver_link(site, cuda, source))
    return Offer(version=version, exact=release.exact, cuda=cuda, links=tuple(links))


def ability(scheme: Scheme, site: Site, version: str) -> Ability:
    del version
    if scheme.name == "int8":
        return Ability(
            how="native",
            because="INT8 with quantize and dequantize nodes in the network, from 7.5 to 12.x",
            source="facts/compatibility/tensorrt_rules",
        )
    return g.ability(scheme, site, engine="TensorRT")


def _cuda(release: facts.TensorrtRelease) -> str | None:
    """The newest CUDA that there are packages for; else the major version of the Python package."""
    listed = [found[0] for text in release.cuda or () if (found := re.match(r"\d+\.\d+", text))]
    if listed:
        return listed[-1]
    found = re.search(r"cu(\d+)$", release.python_package or "")
    return found[1] if found else None


def _network(model: ModelSpec) -> Link:
    holds = not any(group.kv_bytes_per_token_16 for group in model.groups)
    says = (
        f"{model.architecture} is one network without KV cache"
        if holds
        else f"{model.architecture} is a decoder: its export as one network was not tried here"
    )
    return Link(name="architecture", holds=holds, says=says, source="config.json")

"""What engines on GPUs share: links of the chain, options checked against facts, arithmetic."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path, PurePath

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
from model_optimizer.core.site import Ability, Site
from model_optimizer.facts import drivers, formats
from model_optimizer.facts.decisions import EngineOutline
from model_optimizer.facts.versions import key

from . import _arithmetic as a

SIXTEEN = frozenset({"bf16", "fp16"})
RUNTIME_BYTES = 600 * 2**20
FORMAT_OF = {
    "bf16": "bf16", "fp8": "fp8", "fp8_static": "fp8", "fp8_kv": "fp8", "fp8_block": "fp8", "mixed": "nvfp4",
    "awq_int4": "awq_int4", "gptq_int4": "gptq_int4", "int4_rtn": "int4_w4a16", "int8": "int8",
    "nvfp4": "nvfp4", "mxfp4": "mxfp4",
}  # fmt: skip
BLOCKS_FROM = (9, 0)
"""Blocks of FP8 are multiplied in FP8 from here on; before, they are expanded to 16 bits."""
PLUGINS = Path(__file__).parents[1] / "vllm_plugins"
PLUGIN = "mopt_scheduler"
SECRET_ENDS = ("KEY", "TOKEN", "PASSWORD")


def dotted(capability: tuple[int, int] | None) -> str:
    return "unknown" if capability is None else f"{capability[0]}.{capability[1]}"


def covered(have: tuple[int, int], built: Sequence[tuple[int, int]], *, ptx: bool) -> bool:
    """Whether code built for some compute capabilities runs on a GPU.

    Machine code runs on later chips of the same major number; PTX of the last one also on newer majors.
    """
    if any(major == have[0] and minor <= have[1] for major, minor in built):
        return True
    return ptx and bool(built) and max(built) <= have


def vendor_link(site: Site) -> Link | None:
    """Set when the GPU has no CUDA at all."""
    if site.compute_capability is not None and not site.unsupported:
        return None
    says = site.unsupported or f"{site.gpu} has no CUDA"
    return Link(name="gpu", holds=False, says=says, source="facts/gpus")


def capability_link(
    site: Site, minimum: tuple[int, int], engine: str, source: str, *, maximum: tuple[int, int] | None = None
) -> Link:
    have = site.compute_capability or (0, 0)
    holds = have >= minimum and (maximum is None or have <= maximum)
    bound = f"at least {dotted(minimum)}" if maximum is None else f"{dotted(minimum)} to {dotted(maximum)}"
    says = f"{engine} runs on compute capability {bound}, {site.gpu} has {dotted(have)}"
    return Link(name="gpu", holds=holds, says=says, source=source)


def driver_link(site: Site, cuda: str, source: str) -> Link:
    """Whether the driver runs a CUDA by the rule of one major version; None when it is not known."""
    least = drivers.minimum(cuda).driver_linux
    if site.driver is None:
        says = f"CUDA {cuda} asks for driver {least} or newer; the driver is not known"
        return Link(name="driver", holds=None, says=says, source=source)
    holds = drivers.runs(site.driver, cuda)
    word = "runs" if holds else "does not run"
    says = f"driver {site.driver} {word} CUDA {cuda}, which asks for {least} or newer"
    return Link(name="driver", holds=holds, says=says, source=source)


def ability(scheme: Scheme, site: Site, *, vllm: str | None = None, engine: str = "vLLM") -> Ability:
    """How kernels like vLLM's compute a scheme: by the facts of formats where there are some."""
    have = site.compute_capability or (0, 0)
    source = f"facts/compatibility/formats, schemes/{scheme.name}"
    if scheme.min_compute_capability and have < scheme.min_compute_capability:
        least = dotted(scheme.min_compute_capability)
        hint = "; FP16 runs there" if scheme.name == "bf16" else ""
        return Ability(
            how="no",
            because=f"{scheme.name} needs compute capability {least}, {site.gpu} has {dotted(have)}{hint}",
            source=scheme.source,
        )
    if scheme.max_compute_capability and have > scheme.max_compute_capability:
        last = dotted(scheme.max_compute_capability)
        return Ability(
            how="no",
            because=f"{engine} refuses {scheme.name} above compute "
            f"capability {last}, {site.gpu} has {dotted(have)}",
            source=scheme.source,
        )
    if scheme.name == "fp8_block" and have < BLOCKS_FROM:
        return Ability(
            how="weight-only",
            because="blocks of FP8 are computed in 16 bits before "
            f"{dotted(BLOCKS_FROM)}: memory is saved, not work",
            source="planner/speed, vllm 0.33.0 fp8.py",
        )
    name = FORMAT_OF.get(scheme.name)
    if name is None:
        how = "native" if scheme.weight_number == "float" else "weight-only"
        return Ability(how=how, because=f"every GPU from {dotted(have)} on computes it", source=scheme.source)
    found = formats.support(name, have, vllm=vllm)
    found = formats.support(name, have) if found == "unknown" else found
    if found == "unknown":
        found = "weight-only" if scheme.weight_bits < 16 else "native"
    texts = {
        "native": f"{site.gpu} ({dotted(have)}) multiplies {scheme.name} itself",
        "weight-only": f"on {dotted(have)} the weights stay {scheme.weight_bits} bits and are computed in 16",
        "no": f"{engine} has no kernel for {scheme.name} on compute capability {dotted(have)}",
    }
    return Ability(how=found, because=texts[found], source=source)


def take(outline: EngineOutline, version: str, flag: str) -> str:
    """The option, when this release is known to take it. UsageError otherwise: a plan never guesses one."""
    since = outline.flags.get(flag)
    if since is None or key(since) > key(version):
        known = "no release known here takes it" if since is None else f"it came with {since}"
        raise UsageError(f"{outline.engine} {version} does not take `{flag}`", cause=(known,))
    return flag


def served_name(plan: Plan) -> str:
    """What requests call the model: the last part of its name or path."""
    return PurePath(plan.model).name or "model"


def docker(plan: Plan, image: str, inner: Sequence[str], port: int, *, gpus: int) -> tuple[str, ...]:
    """`docker run` with the model's cache mounted; the port is published where the server should listen.

    What lies in a folder is mounted under the path it has; a relative one under /models.
    """
    words = ["docker", "run", "--rm", "--ipc=host", "--gpus", "all" if gpus > 1 else "device=0"]
    words += ["-p", f"{listening(plan)}:{port}:{port}", "-v", "~/.cache/huggingface:/root/.cache/huggingface"]
    if is_folder(plan.checkpoint):
        inside = plan.checkpoint
        if not inside.startswith("/"):
            inside = f"/models/{PurePath(inside).name}"
        words += ["-v", f"{plan.checkpoint}:{inside}:ro"]
        inner = [inside if word == plan.checkpoint else word for word in inner]
    for name, value in plan.env.items():
        words += ["-e", f"{name}={value}"]
    return (*words, image, *inner)


def network_shapes(plan: Plan) -> tuple[str, ...]:
    """The smallest, the usual and the largest input that a network is built for."""
    batch = plan.setting("max_batch_size") or "8"
    image = plan.setting("image")
    if image:
        sizes = (
            ("min", f"pixel_values:1x{image}"),
            *((n, f"pixel_values:{batch}x{image}") for n in ("opt", "max")),
        )
    else:
        longest = plan.setting("max_model_len") or "512"
        inputs = (plan.setting("inputs") or "input_ids,attention_mask").split(",")
        sizes = tuple(
            (name, ",".join(f"{one}:{b}x{n}" for one in inputs))
            for name, b, n in (("min", "1", "1"), ("opt", batch, longest), ("max", batch, longest))
        )
    return tuple(f"--{name}Shapes={shape}" for name, shape in sizes)


def is_folder(checkpoint: str) -> bool:
    """Paths begin with / . or ~ ; a hub id does not."""
    return checkpoint.startswith(("/", ".", "~"))


def memory(model: ModelSpec, scheme: Scheme, work: Workload) -> tuple[Term, ...]:
    """A lower bound by plain arithmetic; `mopt fit` has the accounting of engines it knows."""
    weights = Term(
        name="weights",
        bytes=max(1, model.parameters * scheme.weight_bits // 8),
        because=f"{model.parameters:,} parameters x {scheme.weight_bits} bits",
        source="derived",
    )
    runtime = Term(
        name="runtime", bytes=RUNTIME_BYTES, because="CUDA context and libraries", source="assumed"
    )
    if not a.keeps_tokens(model):
        return weights, runtime
    return weights, a.kv_cache(model, work, 16, a.running(work)), runtime


def settings(model: ModelSpec, work: Workload, host: Host, names: Mapping[str, str]) -> tuple[Setting, ...]:
    """Context and batch by the engine's own names; `plan` derives all others."""
    del host
    context, batch = a.context(model, work), a.at_once(work)
    return (
        Setting(name=names["context"], value=context.value, because=context.because, source=context.source),
        Setting(name=names["batch"], value=batch.value, because=batch.because, source=batch.source),
    )


def listening(plan: Plan) -> str:
    """The address that a server listens on: this machine alone, unless the user names another."""
    return plan.setting("host") or "127.0.0.1"


def launch(plan: Plan, words: Sequence[str], environment: str, *, program: str | None = None) -> Launch:
    return Launch(
        environment=environment,
        program=program,
        arguments=tuple(words),
        env={name: value for name, value in plan.env.items() if not name.endswith(SECRET_ENDS)},
        served_name=served_name(plan),
    )


def with_plugins(made: Launch, scheduler: str | None) -> Launch:
    """The same with our scheduler within its reach, when that is the one that was asked for."""
    if scheduler is None or not scheduler.startswith(f"{PLUGIN}."):
        return made
    return replace(made, env={**made.env, "PYTHONPATH": str(PLUGINS)})

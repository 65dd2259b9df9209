"""vLLM on NVIDIA GPUs: which release serves a model where, and the exact command with checked options."""

from model_optimizer.core import (
    Host,
    Launch,
    Link,
    ModelSpec,
    Plan,
    Scheme,
    Setting,
    Term,
    Workload,
)
from model_optimizer.core.site import Ability, Offer, Site
from model_optimizer.facts import architectures, releases
from model_optimizer.facts import vllm as facts
from model_optimizer.facts.versions import key
from model_optimizer.facts.vllm import take, takes

from . import _gpu as g

TITLE = "vLLM"
READS = {
    "safetensors": frozenset(
        {
            "fp32", "bf16", "fp16", "fp8", "fp8_block", "fp8_static", "awq_int4", "gptq_int4", "int4_rtn",
            "int8", "int8_weight", "nvfp4", "mxfp4",
        }
    ),
    "compressed_tensors": frozenset(
        {
            "fp8", "fp8_block", "fp8_static", "fp8_kv", "awq_int4", "gptq_int4", "int4_rtn", "int8",
            "int8_weight", "nvfp4", "mxfp4",
        }
    ),
    "modelopt": frozenset({"fp8", "fp8_static", "nvfp4", "mixed"}),
}  # fmt: skip
TASKS = frozenset({"generate", "embed", "rerank"})
DEVICES = frozenset({"gpu"})
ENVIRONMENT = "vllm"
BASELINE = False
MEMORY = "vllm"
ONE_PROCESS = False
MODULE = "vllm.entrypoints.cli.main"
CONTEXT, BATCH = "max-model-len", "max-num-seqs"
DTYPES = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}
NEEDS = {
    "generate": ("generate", "multimodal"),
    "embed": ("embed", "generate"),
    "rerank": ("rerank", "generate"),
}
CU129_FROM = "0.20.0"
"""From here on the plain image is CUDA 13 and `-cu129` is a variant of it."""
CU129_SOURCE = (
    "facts/compatibility/vllm_notes (cuda); vllm-project/vllm .buildkite/scripts/annotate-release.sh (tags)"
)
ENTRYPOINT_FROM = "0.11.2"
"""From here on the image starts with `vllm serve`."""
VALUES = (
    "dtype", "max-model-len", "max-num-seqs", "max-num-batched-tokens", "gpu-memory-utilization",
    "kv-cache-memory-bytes", "quantization", "kv-cache-dtype", "tensor-parallel-size",
    "pipeline-parallel-size", "data-parallel-size",
    "block-size", "kv-offloading-size", "runner", "task", "reasoning-parser", "tool-call-parser",
    "hf-overrides", "rope-scaling", "max-cudagraph-capture-size", "generation-config", "stream-interval",
    "api-server-count", "long-prefill-token-threshold", "speculative-config", "attention-backend",
    "performance-mode", "scheduler-cls", "load-format",
)  # fmt: skip
SWITCHES = ("enforce-eager", "enable-expert-parallel", "enable-auto-tool-choice", "enable-reasoning")
EITHER_WAY = ("async-scheduling", "enable-prefix-caching", "enable-chunked-prefill")
"""Switches that are on by themselves in most releases: `1` asks for them, `0` forbids them."""

TAKES = frozenset({*VALUES, *SWITCHES, *EITHER_WAY, "host"})
WORDS = {
    "context": CONTEXT, "sequences": BATCH, "tokens": "max-num-batched-tokens", "kv_cache": "kv-cache-dtype",
    "eager": "enforce-eager", "share": "gpu-memory-utilization",
}  # fmt: skip
KEY = "VLLM_API_KEY"
PACKAGE = "vllm"
STAGES = (
    ("Application startup complete", "answering"),
    ("Graph capturing finished", "warming up"),
    ("Capturing CUDA graph", "capturing CUDA graphs"),
    ("Capturing cudagraph", "capturing CUDA graphs"),
    ("KV cache size", "warming up"),
    ("Available KV cache memory", "setting up the KV cache"),
    ("torch.compile takes", "profiling"),
    ("Dynamo bytecode transform time", "compiling"),
    ("Using cache directory", "compiling"),
    ("Model loading took", "profiling"),
    ("Loading safetensors checkpoint shards", "loading weights"),
    ("Starting to load model", "loading weights"),
    ("Initializing a V1 LLM engine", "starting its workers"),
    ("Resolved architecture", "starting the engine"),
)
PRINTS = {
    "kv_cache_tokens": r"KV cache size: ([\d,]+) tokens",
    "max_concurrency": r"Maximum concurrency for [\d,]+ tokens per request: ([\d.]+)x",
}


def memory(model: ModelSpec, scheme: Scheme, work: Workload) -> tuple[Term, ...]:
    """A lower bound; `mopt fit` has vLLM's own accounting."""
    return g.memory(model, scheme, work)


def settings(model: ModelSpec, scheme: Scheme, work: Workload, host: Host) -> tuple[Setting, ...]:
    del scheme
    return g.settings(model, work, host, {"context": CONTEXT, "batch": BATCH})


def launch(plan: Plan, port: int) -> Launch:
    """`vllm serve` on 127.0.0.1, in the environment's interpreter."""
    made = g.launch(plan, [MODULE, "serve", *_arguments(plan, g.listening(plan), port)], ENVIRONMENT)
    return g.with_plugins(made, plan.setting("scheduler-cls"))


def command(plan: Plan, port: int = 8000) -> tuple[str, ...]:
    return ("vllm", "serve", *_arguments(plan, "127.0.0.1", port))


def container(plan: Plan, port: int = 8000) -> tuple[str, ...]:
    """`docker run` of the plan's image."""
    version = plan.engine_version or facts.versions()[-1]
    inner = _arguments(plan, "0.0.0.0", port)
    if key(version) < key(ENTRYPOINT_FROM):
        inner = [take(version, "--model"), *inner]
    gpus = plan.tensor_parallel * plan.pipeline_parallel * plan.data_parallel
    return g.docker(plan, plan.image or f"vllm/vllm-openai:v{version}", inner, port, gpus=gpus)


def versions() -> tuple[str, ...]:
    return facts.versions()


def offer(model: ModelSpec, site: Site, version: str) -> Offer:
    """The chain of one release: architecture, GPU, image and CUDA, driver."""
    release = facts.release(version)
    source = f"facts/compatibility/vllm/{release.version}"
    links = [_architecture(model, version)]
    vendor = g.vendor_link(site)
    if vendor:
        return Offer(version=version, exact=release.exact, links=(*links, vendor))
    links.append(g.capability_link(site, release.minimum_compute_capability, f"vLLM {version}", source))
    image, cuda, driver = _image(release, version, site, source)
    built = release.image.compute_capabilities
    if built is not None and links[-1].holds:
        have = site.compute_capability or (0, 0)
        holds = g.covered(have, built, ptx=release.image.ptx)
        says = f"the image has code for {', '.join(g.dotted(c) for c in built)}" + (
            " and PTX of the last" if release.image.ptx else ""
        )
        links.append(
            Link(name="image", holds=holds, says=f"{says}; {site.gpu} is {g.dotted(have)}", source=source)
        )
    links.append(driver)
    notes = () if release.exact else (f"vLLM {version} is not in the facts; {release.version} stands for it",)
    return Offer(
        version=version, exact=release.exact, image=image, cuda=cuda, links=tuple(links), notes=notes
    )


def ability(scheme: Scheme, site: Site, version: str) -> Ability:
    return g.ability(scheme, site, vllm=version)


def _arguments(plan: Plan, host: str, port: int) -> list[str]:
    """The options of the plan. Settings of the source `table` are the release's defaults: left out."""
    version = plan.engine_version or facts.versions()[-1]
    words = [plan.checkpoint, take(version, "--served-model-name"), g.served_name(plan)]
    words += [take(version, "--host"), host, take(version, "--port"), str(port)]
    given = {s.name: s.value for s in plan.settings if s.source != "table"}
    if "dtype" not in given and plan.scheme in DTYPES:
        words += [take(version, "--dtype"), DTYPES[plan.scheme]]
    if plan.workload.task != "generate" and "runner" not in given and "task" not in given:
        words += pooling(version)
    for name in VALUES:
        if name in given:
            words += [take(version, f"--{name}"), given[name]]
    for name in EITHER_WAY:
        if name in given:
            words.append(take(version, f"--{name}").replace("--", "--no-" if given[name] == "0" else "--", 1))
    return words + [take(version, f"--{name}") for name in SWITCHES if given.get(name) == "1"]


def pooling(version: str) -> list[str]:
    """How this release is told to return vectors."""
    if takes(version, "--runner"):
        return [take(version, "--runner"), "pooling"]
    return [take(version, "--task"), "embed"]


def _architecture(model: ModelSpec, version: str) -> Link:
    known = architectures.versions("vllm")
    near = releases.nearest(version, known)
    if near is None:
        says = f"what vLLM {version} serves was not read"
        return Link(name="architecture", holds=None, says=says, source="facts/architectures/vllm")
    registry = architectures.release(near, engine="vllm")
    tasks = registry.serves(model.architecture)
    wanted = NEEDS.get(model.task, ())
    holds = any(task in tasks for task in wanted)
    source = f"facts/architectures/vllm/{near}"
    if holds:
        how = " through the Transformers backend" if model.architecture in registry.general else ""
        says = f"vLLM {version} serves {model.architecture}{how}"
    elif model.architecture in registry.removed:
        says = (
            f"vLLM {version} no longer has {model.architecture}; "
            f"{registry.removed[model.architecture]} had it"
        )
    else:
        says = f"vLLM {version} does not serve {model.architecture} for the task `{model.task}`"
    return Link(name="architecture", holds=holds, says=says, source=source)


def _image(release: facts.VllmRelease, version: str, site: Site, source: str) -> tuple[str | None, str, Link]:
    """(image, its CUDA, the driver's link): the variant whose CUDA the driver runs.

    A driver that runs CUDA 12 runs the variant, so the libraries of forward compatibility are not needed.
    """
    cuda = release.image.cuda or release.cuda
    name = release.image.name if release.exact else f"vllm/vllm-openai:v{version}"
    plain = g.driver_link(site, cuda, source)
    if plain.holds is not False or key(version) < key(CU129_FROM):
        return name, cuda, plain
    variant = g.driver_link(site, "12.9", CU129_SOURCE)
    if variant.holds:
        says = f"{variant.says}: the variant -cu129, since {plain.says}"
        return f"{name}-cu129", "12.9", Link(name="driver", holds=True, says=says, source=CU129_SOURCE)
    return name, cuda, plain

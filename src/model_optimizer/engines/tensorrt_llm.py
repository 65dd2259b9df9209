"""TensorRT-LLM with its PyTorch backend, served by trtllm-serve."""

from model_optimizer.core import Host, Launch, Link, ModelSpec, Plan, Scheme, Setting, Term, Workload
from model_optimizer.core.site import Ability, Offer, Site
from model_optimizer.facts import decisions, tensorrt_llm
from model_optimizer.facts.versions import key

from . import _gpu as g

TITLE = "TensorRT-LLM"
READS = {
    "safetensors": frozenset({"bf16", "fp16", "fp8", "fp8_block", "fp8_static", "awq_int4", "nvfp4", "mxfp4"})
}
TASKS = frozenset({"generate"})
DEVICES = frozenset({"gpu"})
ENVIRONMENT = "tensorrt_llm"
BASELINE = False
MEMORY = "vllm"
ONE_PROCESS = False
PYTORCH_FROM = "1.0.0"
"""From here on the PyTorch backend is the default, and no engine has to be built."""
NAMES = {
    "max-model-len": "--max_seq_len",
    "max-num-seqs": "--max_batch_size",
    "max-num-batched-tokens": "--max_num_tokens",
    "tensor-parallel-size": "--tp_size",
    "pipeline-parallel-size": "--pp_size",
}

TAKES = frozenset({*NAMES, "enable-expert-parallel", "host"})
WORDS = {"context": "max-model-len", "sequences": "max-num-seqs", "tokens": "max-num-batched-tokens"}
KEY = None
PACKAGE = "tensorrt_llm"
STAGES = (
    ("Application startup complete", "answering"),
    ("Run generation only CUDA graph warmup", "capturing CUDA graphs"),
    ("Running autotuner warmup", "profiling"),
    ("Autotuning process", "profiling"),
    ("max tokens in paged KV cache", "setting up the KV cache"),
    ("Memory used after loading model weights", "profiling"),
    ("Loading weights", "loading weights"),
    ("Loading /", "loading weights"),
    ("Prefetching", "loading weights"),
    ("TensorRT-LLM version", "starting the engine"),
    ("TensorRT LLM version", "starting the engine"),
)
PRINTS = {"kv_cache_tokens": r"max tokens in paged KV cache \((\d+)\)"}


def memory(model: ModelSpec, scheme: Scheme, work: Workload) -> tuple[Term, ...]:
    """A lower bound; its own accounting was not measured."""
    return g.memory(model, scheme, work)


def settings(model: ModelSpec, scheme: Scheme, work: Workload, host: Host) -> tuple[Setting, ...]:
    del scheme
    return g.settings(model, work, host, {"context": "max-model-len", "batch": "max-num-seqs"})


def launch(plan: Plan, port: int) -> Launch:
    words = ["tensorrt_llm.commands.serve", *_arguments(plan, g.listening(plan), port)]
    return g.launch(plan, words, ENVIRONMENT)


def command(plan: Plan, port: int = 8000) -> tuple[str, ...]:
    return (*decisions.outline("tensorrt_llm").entrypoint, *_arguments(plan, "127.0.0.1", port))


def container(plan: Plan, port: int = 8000) -> tuple[str, ...]:
    outline = decisions.outline("tensorrt_llm")
    inner = (*outline.entrypoint, *_arguments(plan, "0.0.0.0", port))
    image = plan.image or outline.image.format(version=versions()[-1])
    return g.docker(plan, image, inner, port, gpus=plan.tensor_parallel * plan.pipeline_parallel)


def versions() -> tuple[str, ...]:
    """Releases whose PyTorch backend is the default; candidates of a release only when nothing else is."""
    known = [v for v in tensorrt_llm.versions() if key(v) >= key(PYTORCH_FROM)]
    stable = [v for v in known if "rc" not in v]
    return (*(v for v in known if "rc" in v), *stable)


def offer(model: ModelSpec, site: Site, version: str) -> Offer:
    outline = decisions.outline("tensorrt_llm")
    release = tensorrt_llm.release(version)
    served = outline.architectures(version)
    source = outline.source[0]
    holds = None if served is None else model.architecture in served
    words = {True: "serves", False: "does not list", None: "may or may not serve"}
    links = [
        Link(
            name="architecture",
            holds=holds,
            says=f"TensorRT-LLM {version} {words[holds]} {model.architecture}",
            source=source,
        )
    ]
    vendor = g.vendor_link(site)
    if vendor:
        return Offer(version=version, exact=release.exact, links=(*links, vendor))
    where = f"facts/compatibility/tensorrt_llm/{release.version}"
    links.append(g.capability_link(site, outline.minimum_compute_capability, "TensorRT-LLM", where))
    if release.cuda:
        links.append(g.driver_link(site, release.cuda, where))
    return Offer(
        version=version,
        exact=release.exact,
        image=outline.image.format(version=version),
        cuda=release.cuda,
        links=tuple(links),
        notes=(f"GPUs that this release names: {release.gpus}",),
    )


def ability(scheme: Scheme, site: Site, version: str) -> Ability:
    del version
    return g.ability(scheme, site, engine="TensorRT-LLM")


def _arguments(plan: Plan, host: str, port: int) -> list[str]:
    outline = decisions.outline("tensorrt_llm")
    version = plan.engine_version or versions()[-1]

    def option(flag: str) -> str:
        return g.take(outline, version, flag)

    words = [
        plan.checkpoint,
        option("--host"),
        host,
        option("--port"),
        str(port),
        option("--backend"),
        "pytorch",
    ]
    given = {s.name: s.value for s in plan.settings if s.source != "table"}
    for name, flag in NAMES.items():
        if name in given:
            words += [option(flag), given[name]]
    if given.get("enable-expert-parallel") == "1":
        words += [option("--ep_size"), str(plan.tensor_parallel)]
    return words

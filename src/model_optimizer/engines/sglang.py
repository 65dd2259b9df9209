"""SGLang on NVIDIA GPUs: an OpenAI server with a cache of prefixes."""

from model_optimizer.core import Host, Launch, Link, ModelSpec, Plan, Scheme, Setting, Term, Workload
from model_optimizer.core.site import Ability, Offer, Site
from model_optimizer.facts import architectures, decisions
from model_optimizer.facts.versions import key

from . import _gpu as g

TITLE = "SGLang"
READS = {
    "safetensors": frozenset(
        {"bf16", "fp16", "fp8", "fp8_block", "fp8_static", "awq_int4", "gptq_int4", "int8", "nvfp4", "mxfp4"}
    )
}
TASKS = frozenset({"generate", "embed", "rerank"})
DEVICES = frozenset({"gpu"})
ENVIRONMENT = "sglang"
BASELINE = False
MEMORY = "vllm"
ONE_PROCESS = False
NAMES = {
    "max-model-len": "--context-length",
    "max-num-seqs": "--max-running-requests",
    "max-num-batched-tokens": "--chunked-prefill-size",
    "gpu-memory-utilization": "--mem-fraction-static",
    "kv-cache-dtype": "--kv-cache-dtype",
    "quantization": "--quantization",
    "tensor-parallel-size": "--tp-size",
    "pipeline-parallel-size": "--pp-size",
    "dtype": "--dtype",
    "reasoning-parser": "--reasoning-parser",
    "tool-call-parser": "--tool-call-parser",
}
"""Settings by the names that plans use, and SGLang's options for them."""
BACKENDS_FROM = "0.5.18"
"""From here on each kind of step has a backend for graphs, and the old switch is deprecated."""
DTYPES = {"bf16": "bfloat16", "fp16": "float16"}
KV = {"fp8": "fp8_e4m3"}
TASK_OF = {"generate": ("generate", "multimodal"), "embed": ("embed", "generate"), "rerank": ("rerank",)}

TAKES = frozenset({*NAMES, "enable-expert-parallel", "enforce-eager", "host"})
WORDS = {
    "context": "max-model-len", "sequences": "max-num-seqs", "tokens": "max-num-batched-tokens",
    "kv_cache": "kv-cache-dtype", "eager": "enforce-eager", "share": "gpu-memory-utilization",
}  # fmt: skip
KEY = None
"""It takes a key on its command line alone, where everyone on the machine reads it."""
PACKAGE = "sglang"
STAGES = (
    ("The server is fired up and ready to roll", "answering"),
    ("Application startup complete", "warming up"),
    ("CUDA graph end", "setting up the scheduler"),
    ("CUDA graph begin", "capturing CUDA graphs"),
    ("Capturing batches", "capturing CUDA graphs"),
    ("Memory pool end", "setting up the scheduler"),
    ("Cache is allocated", "setting up the KV cache"),
    ("Load weight end", "setting up the KV cache"),
    ("Load weight begin", "loading weights"),
    ("Loading safetensors checkpoint shards", "loading weights"),
    ("Init torch distributed", "starting its workers"),
    ("server_args=", "starting the engine"),
)
"""Of the wheel of 0.5.23; older releases write the same words in other case."""
PRINTS = {"kv_cache_tokens": r"max_total_num_tokens=(\d+)"}


def memory(model: ModelSpec, scheme: Scheme, work: Workload) -> tuple[Term, ...]:
    """A lower bound; SGLang's own accounting was not measured."""
    return g.memory(model, scheme, work)


def settings(model: ModelSpec, scheme: Scheme, work: Workload, host: Host) -> tuple[Setting, ...]:
    del scheme
    return g.settings(model, work, host, {"context": "max-model-len", "batch": "max-num-seqs"})


def launch(plan: Plan, port: int) -> Launch:
    words = ["sglang.launch_server", *_arguments(plan, g.listening(plan), port)]
    return g.launch(plan, words, ENVIRONMENT)


def command(plan: Plan, port: int = 8000) -> tuple[str, ...]:
    return (*decisions.outline("sglang").entrypoint, *_arguments(plan, "127.0.0.1", port))


def container(plan: Plan, port: int = 8000) -> tuple[str, ...]:
    outline = decisions.outline("sglang")
    gpus = plan.tensor_parallel * plan.pipeline_parallel
    inner = (*outline.entrypoint, *_arguments(plan, "0.0.0.0", port))
    return g.docker(plan, plan.image or "lmsysorg/sglang:latest", inner, port, gpus=gpus)


def versions() -> tuple[str, ...]:
    return architectures.versions("sglang")


def offer(model: ModelSpec, site: Site, version: str) -> Offer:
    outline = decisions.outline("sglang")
    known = versions()
    near = version if version in known else _nearest(version, known)
    tasks = architectures.release(near, engine="sglang").serves(model.architecture)
    holds = any(task in tasks for task in TASK_OF.get(model.task, ()))
    word = "serves" if holds else "does not serve"
    links = [
        Link(
            name="architecture",
            holds=holds,
            says=f"SGLang {version} {word} {model.architecture} for the task `{model.task}`",
            source=f"facts/architectures/sglang/{near}",
        )
    ]
    vendor = g.vendor_link(site)
    if vendor:
        return Offer(version=version, exact=version in known, links=(*links, vendor))
    source = "facts/decisions/engines/sglang"
    links.append(g.capability_link(site, outline.minimum_compute_capability, "SGLang", source))
    row, image = outline.cuda(version), outline.image.format(version=version)
    cuda = row.cuda if row else None
    if row:
        link = g.driver_link(site, row.cuda, source)
        if link.holds is not False and row.variant_cuda:
            other = g.driver_link(site, row.variant_cuda, source)
            newer = (site.compute_capability or (0, 0)) >= (10, 0)
            if newer and other.holds is not False:
                link, image, cuda = other, image + (row.variant or ""), row.variant_cuda
        links.append(link)
    return Offer(version=version, exact=version in known, image=image, cuda=cuda, links=tuple(links))


def ability(scheme: Scheme, site: Site, version: str) -> Ability:
    del version
    return g.ability(scheme, site, engine="SGLang")


def _nearest(version: str, known: tuple[str, ...]) -> str:
    before = [v for v in known if key(v) <= key(version)]
    return before[-1] if before else known[0]


def _arguments(plan: Plan, host: str, port: int) -> list[str]:
    outline = decisions.outline("sglang")
    version = plan.engine_version or versions()[-1]

    def option(flag: str) -> str:
        return g.take(outline, version, flag)

    words = [option("--model-path"), plan.checkpoint, option("--served-model-name"), g.served_name(plan)]
    words += [option("--host"), host, option("--port"), str(port)]
    given = {s.name: s.value for s in plan.settings if s.source != "table"}
    if "dtype" not in given and plan.scheme in DTYPES:
        words += [option("--dtype"), DTYPES[plan.scheme]]
    for name, flag in NAMES.items():
        if name in given:
            value = KV.get(given[name], given[name]) if name == "kv-cache-dtype" else given[name]
            words += [option(flag), value]
    if plan.workload.task != "generate":
        words.append(option("--is-embedding"))
    if given.get("enable-expert-parallel") == "1":
        words += [option("--ep-size"), str(plan.tensor_parallel)]
    if given.get("enforce-eager") == "1":
        words += _without_graphs(version)
    return words


def _without_graphs(version: str) -> list[str]:
    """One switch, until a choice for each kind of step took its place."""
    outline = decisions.outline("sglang")
    if key(version) < key(BACKENDS_FROM):
        return [g.take(outline, version, "--disable-cuda-graph")]
    names = ("--cuda-graph-backend-decode", "--cuda-graph-backend-prefill")
    return [word for name in names for word in (g.take(outline, version, name), "disabled")]

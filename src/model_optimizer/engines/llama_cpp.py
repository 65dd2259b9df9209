"""llama.cpp: GGUF files on laptops and old GPUs, with layers on the CPU where the GPU is too small.

Ollama runs the same code; `modelfile` writes what it needs.
"""

import dataclasses
from collections.abc import Mapping
from pathlib import PurePath

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
from model_optimizer.facts import decisions

from . import _gpu as g

TITLE = "llama.cpp"
READS = {"gguf": frozenset({"fp32", "bf16", "fp16", "int8_weight", "int4_rtn"})}
TASKS = frozenset({"generate", "embed", "rerank"})
DEVICES = frozenset({"gpu", "cpu"})
ENVIRONMENT = "llama_cpp"
BASELINE = False
MEMORY = "llama.cpp"
ONE_PROCESS = True
FILES = {"fp32": "F32", "bf16": "BF16", "fp16": "F16", "int8_weight": "Q8_0", "int4_rtn": "Q4_K_M"}
"""The GGUF quantization that stands for a scheme."""
NAMES = {
    "ctx-size": "--ctx-size",
    "parallel": "--parallel",
    "n-gpu-layers": "--n-gpu-layers",
    "mmproj": "--mmproj",
    "cache-type-k": "--cache-type-k",
    "cache-type-v": "--cache-type-v",
    "batch-size": "--batch-size",
    "ubatch-size": "--ubatch-size",
    "threads": "--threads",
}

TAKES = frozenset({*NAMES, "jinja", "host"})
SHARED = {"ctx-size": "parallel"}
WORDS = {"context": "ctx-size", "sequences": "parallel", "tokens": "batch-size"}
PROGRAM = "llama-server"
KEY = "LLAMA_API_KEY"
STAGES = (
    ("listening on", "answering"),
    ("model loaded", "answering"),
    ("warming up the model", "warming up"),
    ("KV buffer size", "setting up the KV cache"),
    ("constructing llama_context", "setting up the KV cache"),
    ("load_tensors:", "loading weights"),
    ("llama_model_loader:", "reading the file"),
    ("loading model", "reading the file"),
)
PRINTS = {"kv_cache_tokens": r"llama_context: n_ctx\s+= (\d+)|n_slots = (\d+), n_ctx_slot = (\d+)"}


def memory(model: ModelSpec, scheme: Scheme, work: Workload) -> tuple[Term, ...]:
    """A lower bound; `mopt fit --engine llama.cpp` has the accounting by layers."""
    return g.memory(model, scheme, work)


def settings(model: ModelSpec, scheme: Scheme, work: Workload, host: Host) -> tuple[Setting, ...]:
    del scheme
    context, slots = g.settings(model, work, host, {"context": "ctx-size", "batch": "parallel"})
    return _of_all(context, int(slots.value)), slots


def follow(plan: Plan, model: ModelSpec, scheme: Scheme) -> Plan:
    """The context that goes with as many slots as a user names. UsageError for slots that are no number."""
    del scheme
    asked = {s.name: s.value for s in plan.settings if s.source == "user"}
    if "parallel" not in asked:
        return plan
    slots = _slots(plan)
    if "ctx-size" in asked:
        return plan
    context, _ = g.settings(model, plan.workload, Host(), {"context": "ctx-size", "batch": "parallel"})
    whole = _of_all(context, slots)
    return dataclasses.replace(
        plan, settings=tuple(whole if s.name == "ctx-size" else s for s in plan.settings)
    )


def _slots(plan: Plan) -> int:
    """How many requests at once share the context. llama-server itself takes -1 and chooses a number then."""
    value = plan.setting("parallel") or "1"
    if value.isascii() and value.isdecimal() and int(value) >= 1:
        return int(value)
    raise UsageError(
        f"`parallel` is a number from 1 on, not `{value}`",
        cause=("the context is shared by all slots: how long a request may get would not be known",),
        hint=("name how many requests are to be answered at once: --set parallel=4", "or leave it out"),
    )


def _of_all(context: Setting, slots: int) -> Setting:
    """The context is of all slots together: as many requests at once as there are slots."""
    because = f"{context.value} tokens a slot, {slots} slots: {context.because}"
    return dataclasses.replace(context, value=str(int(context.value) * slots), because=because)


def launch(plan: Plan, port: int) -> Launch:
    return g.launch(plan, _arguments(plan, g.listening(plan), port), ENVIRONMENT, program=PROGRAM)


def expected(plan: Plan, model: ModelSpec | None) -> Mapping[str, float]:
    """The context is the cache: what is asked for is what it makes."""
    del model
    context = plan.setting("ctx-size") or ""
    return {"kv_cache_tokens": float(context)} if context.isdecimal() and int(context) else {}


def command(plan: Plan, port: int = 8000) -> tuple[str, ...]:
    return (*decisions.outline("llama_cpp").entrypoint, *_arguments(plan, "127.0.0.1", port))


def container(plan: Plan, port: int = 8000) -> tuple[str, ...]:
    image = plan.image or decisions.outline("llama_cpp").image
    words = g.docker(plan, image, _arguments(plan, "0.0.0.0", port), port, gpus=1)
    if image == decisions.outline("llama_cpp").image_other:
        # Vulkan reaches GPUs of any maker by their device files; `--gpus` is NVIDIA's.
        at = words.index("--gpus")
        words = (*words[:at], "--device", "/dev/dri", *words[at + 2 :])
    projector = plan.setting("mmproj")
    if projector is None:
        return words
    inside, at = f"/models/{PurePath(projector).name}", words.index(image)
    words = tuple(inside if word == projector else word for word in words)
    return (*words[:at], "-v", f"{projector}:{inside}:ro", *words[at:])


def image_cpu() -> str | None:
    """Of its images the one without CUDA."""
    return decisions.outline("llama_cpp").image_cpu


def modelfile(plan: Plan) -> str:
    """An Ollama Modelfile of the plan. There the context is of one request, and slots are the server's."""
    slots = _slots(plan)
    lines = [f"# start the server with OLLAMA_NUM_PARALLEL={slots}", f"FROM {plan.checkpoint}"]
    if projector := plan.setting("mmproj"):
        lines.insert(1, "# not every family takes its projector so: `ollama show` must list `vision`")
        lines.append(f"FROM {projector}")
    if context := plan.setting("ctx-size"):
        lines.append(f"PARAMETER num_ctx {int(context) // slots}")
    if layers := plan.setting("n-gpu-layers"):
        lines.append(f"PARAMETER num_gpu {layers}")
    return "\n".join(lines) + "\n"


def versions() -> tuple[str, ...]:
    """llama.cpp numbers its builds and has no releases; `0` stands for the current one."""
    return ("0",)


def offer(model: ModelSpec, site: Site, version: str) -> Offer:
    outline = decisions.outline("llama_cpp")
    served = outline.architectures(version) or ()
    holds = model.model_type in served
    word = "has" if holds else "is not known to have"
    links = [
        Link(
            name="architecture",
            holds=holds,
            says=f"llama.cpp {word} the model type {model.model_type}",
            source=outline.source[1],
        )
    ]
    source = outline.source[0]
    if site.unsupported or site.compute_capability is None:
        says = f"{site.gpu} has no CUDA; llama.cpp runs on it with Vulkan, or with ROCm where it has the chip"
        links.append(Link(name="gpu", holds=True, says=says, source=source))
        return Offer(version=version, image=outline.image_other, links=tuple(links), notes=outline.notes)
    links.append(g.capability_link(site, outline.minimum_compute_capability, "llama.cpp", source))
    row = outline.cuda(version)
    if row:
        links.append(g.driver_link(site, row.cuda, source))
    return Offer(
        version=version,
        image=outline.image,
        cuda=row.cuda if row else None,
        links=tuple(links),
        notes=outline.notes[:1],
    )


def ability(scheme: Scheme, site: Site, version: str) -> Ability:
    del version
    if scheme.name == "bf16" and (site.compute_capability or (8, 0)) < (8, 0):
        return Ability(
            how="no",
            because="BF16 is computed from 8.0 on; F16 is the file to take",
            source="schemes/bf16",
        )
    how = "native" if scheme.weight_number == "float" else "weight-only"
    return Ability(
        how=how,
        because=f"{FILES[scheme.name]} is expanded by llama.cpp's own kernels on any GPU",
        source=decisions.outline("llama_cpp").source[0],
    )


def _arguments(plan: Plan, host: str, port: int) -> list[str]:
    outline = decisions.outline("llama_cpp")
    _slots(plan)  # a plan.json may name any, and is not followed

    def option(flag: str) -> str:
        return g.take(outline, "0", flag)

    words = [option("--model"), plan.checkpoint, option("--alias"), g.served_name(plan)]
    words += [option("--host"), host, option("--port"), str(port)]
    given = {s.name: s.value for s in plan.settings if s.source != "table"}
    for name, flag in NAMES.items():
        if name in given:
            words += [option(flag), given[name]]
    if plan.workload.task != "generate":
        words.append(option("--embedding"))
    elif not plan.setting("jinja"):
        words.append(option("--jinja"))
    return words

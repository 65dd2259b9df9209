"""From what a person writes to the question of a plan: the GPU or this host, defaults that are said so."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from model_optimizer.core import (
    FitQuestion,
    GpuMemory,
    Host,
    Lengths,
    Plan,
    ReadModel,
    Slo,
    Task,
    UsageError,
    Workload,
    digest,
    plugins,
)
from model_optimizer.core.question import EstimateQuestion, StepSource
from model_optimizer.core.site import Site
from model_optimizer.facts import decisions, gpus
from model_optimizer.facts.gpus import GpuFact
from model_optimizer.facts.prices import Prices
from model_optimizer.planner import Options
from model_optimizer.planner.decide import Functions, PlanQuestion, StepsFunction, Wishes
from model_optimizer.planner.images import Images
from model_optimizer.planner.memory import card, encoder

if TYPE_CHECKING:
    from model_optimizer.core.steps import StepModel
    from model_optimizer.planner.estimate import Desk
    from model_optimizer.planner.speed import Setup

ENGINES = "model_optimizer.engines"
NETWORK = "onnx_typed"
MEASURED_SEQS, MEASURED_TOKENS = 256, 8192
"""Limits of servers that were measured, where a measurement does not say its own."""
FORMS = {
    "ollama": "llama_cpp", "vllm": "vllm", "sglang": "sglang", "trtllm-serve": "tensorrt_llm",
    "llama-server": "llama_cpp", "tensorrt": "tensorrt", "tensorrt-rtx": "tensorrt_rtx",
}  # fmt: skip
"""The engine of each form of a command that only one engine has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRequest:
    """What the command line says. `gpu` None means this machine, or `host` when that is given.

    `gpus` None takes all GPUs of the host, one of a named GPU. `used_bytes` is what others hold on each.
    `driver` is the version of the driver, where no host says it. `step_model` says where times come from:
    `auto` takes measurements of this model or machine, then the roofline. `images` is how many a prompt
    holds, of `image_size` pixels; None counts none and leaves room for one.
    """

    model: ReadModel
    checkpoint: str
    gpu: str | None = None
    gpus: int | None = None
    host: Host | None = None
    driver: str | None = None
    used_bytes: int | None = None
    prompt_tokens: Lengths | None = None
    output_tokens: Lengths | None = None
    shared_prefix: int = 0
    qps: float | None = None
    concurrency: int | None = None
    requests: int | None = None
    slo: Slo = field(default_factory=Slo)
    wishes: Wishes = field(default_factory=Wishes)
    images: int | None = None
    image_size: tuple[int, int] | None = None
    texts: int = 1
    build_minutes: float = 0.0
    changes_per_month: float = 1.0
    prices: Prices | None = None
    measured: Mapping[tuple[str, str], float] = field(default_factory=dict[tuple[str, str], float])
    step_model: StepSource = "auto"


def question_of(request: PlanRequest) -> PlanQuestion:
    """UsageError for numbers that contradict each other, HostError when there is no GPU."""
    spec = request.model.spec
    workload, assumed = _workload(request, spec.task)
    room, said = _image_room(_images(request))
    assumed |= said
    fact, memory, driver = _gpu(request)
    memory, held = _reserved(request, memory, fact)
    if held:
        assumed["reserve"] = held
    memory, budget = card.instance(memory, request.wishes.vram_bytes)
    if card.SPLIT in memory.because:
        assumed["whole GPU"] = card.SPLIT
    if memory.share < 1:
        assumed["GPU"] = memory.because
    host = request.host
    return PlanQuestion(
        model=spec,
        gguf=request.model.gguf,
        checkpoint=request.checkpoint,
        site=_site(request, fact, memory, driver),
        card=memory,
        gpu=gpus.part(fact, memory.share),
        gpus=_count(request),
        host_digest=digest.of_noun(host) if host else None,
        host_memory_bytes=host.memory_available_bytes if host else None,
        workload=workload,
        slo=request.slo,
        wishes=replace(request.wishes, vram_bytes=budget),
        image_room=room,
        image_operations=_images(request).operations,
        texts=request.texts,
        build_minutes=request.build_minutes,
        changes_per_month=request.changes_per_month,
        assumed=assumed,
        prices=request.prices,
        measured=request.measured,
    )


def _site(request: PlanRequest, fact: GpuFact, memory: GpuMemory, driver: str | None) -> Site:
    return Site(
        gpu=fact.name,
        vendor=fact.vendor,
        compute_capability=memory.compute_capability if fact.compute_capability else None,
        memory_bytes=memory.total_bytes,
        driver=request.driver or driver,
        server=card.shared_with(fact) is None,
        wsl=bool(request.host and request.host.wsl),
        unsupported=fact.unsupported,
    )


def here(request: PlanRequest) -> tuple[Site, GpuMemory]:
    """The GPU that a request names or its host has. HostError when there is none."""
    fact, memory, driver = _gpu(request)
    memory, _ = _reserved(request, memory, fact)
    memory, _ = card.instance(memory, request.wishes.vram_bytes)
    return _site(request, fact, memory, driver), replace(memory, name=fact.name)


def functions(steps: StepsFunction | None = None, *, required: bool = False) -> Functions:
    """The real arithmetic, and every engine that runs on a GPU and says how it is reached.

    `steps` is where times of steps come from, the roofline by default; when they are `required`, nothing is
    taken without them.
    """
    from model_optimizer.planner.fit import fit
    from model_optimizer.planner.service import estimate
    from model_optimizer.planner.speed import roofline

    engines = plugins.load_all(ENGINES)
    return Functions(
        fit=fit,
        steps=steps or roofline,
        estimate=estimate,
        engines={name: e for name, e in engines.items() if "gpu" in e.DEVICES and hasattr(e, "offer")},
        steps_required=required,
        networks=_networks,
        schemes={n: m.SCHEME for n, m in plugins.load_all("model_optimizer.schemes").items()},
    )


@cache
def _networks() -> frozenset[str]:
    """Schemes in which some tool of convert/ writes a network that TensorRT takes."""
    writes = [getattr(tool, "WRITES", {}) for tool in plugins.load_all("model_optimizer.convert").values()]
    return frozenset(name for one in writes for name, form in one.items() if form == NETWORK)


def stepping(question: PlanQuestion, source: StepSource, desk: "Desk") -> StepsFunction:
    """Times of steps from what was asked for: measurements where there are some, and drafts on top."""
    from model_optimizer.planner.estimate.steps import speculate, steps_of
    from model_optimizer.planner.service import Limits

    asked = EstimateQuestion(
        placed=FitQuestion(model=question.model, gpu=question.card),
        workload=question.workload,
        step_model=source,
        speculation=question.wishes.speculation,
    )
    limits = Limits(max_num_seqs=MEASURED_SEQS, max_num_batched_tokens=MEASURED_TOKENS)

    def steps(setup: "Setup") -> "StepModel":
        found = steps_of(asked, setup, limits, desk)
        return speculate(asked, setup, found, question.workload)[0] if setup.engine == "vllm" else found

    return steps


def _workload(request: PlanRequest, task: Task) -> tuple[Workload, dict[str, str]]:
    """The load, and what was assumed of it."""
    if request.qps is not None and request.concurrency is not None:
        raise UsageError("--qps and --concurrency exclude each other", hint=("give one of them",))
    assumed: dict[str, str] = {}
    generates = task == "generate"
    prompt, output = request.prompt_tokens, request.output_tokens
    places = request.model.spec.max_position if task == "vision" else None
    if prompt is None and places:
        # An image has as many places as the model cuts it into; nothing is assumed.
        prompt = Lengths.fixed(places)
    elif prompt is None:
        rule = decisions.rule("default-prompt-tokens" if generates else "default-embed-tokens")
        prompt = Lengths.fixed(int(rule.value))
        assumed["prompt_tokens"] = f"{rule.value:g} tokens, {rule.because}"
    if output is None:
        rule = decisions.rule("default-output-tokens")
        output = Lengths.fixed(int(rule.value))
        if generates:
            assumed["output_tokens"] = f"{rule.value:g} tokens, {rule.because}"
    prompt = _images(request).prompts(prompt)
    burst = request.qps == float("inf")
    concurrency = request.concurrency
    if request.qps is None and concurrency is None:
        rule = decisions.rule("default-concurrency")
        concurrency = int(rule.value)
        assumed["load"] = f"{rule.value:g} clients, {rule.because}"
    if request.shared_prefix and request.shared_prefix >= prompt.mean:
        raise UsageError(
            f"a shared prefix of {request.shared_prefix} tokens is longer than prompts of {prompt}",
            hint=("--prompt-tokens counts the prefix too",),
        )
    work = Workload(
        task=task,
        arrivals="burst" if burst else "poisson" if request.qps else "closed",
        qps=request.qps,
        concurrency=concurrency,
        requests=request.requests,
        prompt_tokens=prompt,
        output_tokens=output,
        shared_prefix=request.shared_prefix,
    )
    return work, assumed


def _images(request: PlanRequest) -> Images:
    return Images(model=request.model.spec, count=request.images, size=request.image_size)


def _image_room(images: Images) -> tuple[int, dict[str, str]]:
    """(tokens that a longest request must have room for beside its text, what was assumed)."""
    if images.count:
        return 0, {"image encoder": images.said()}
    if images.count is not None or not encoder.reads_images(images.model):
        return 0, {}
    each, rule = images.tokens, decisions.rule("image-side")
    if each is None:
        return 0, {"images": "their tokens are not known here: count them with --prompt-tokens"}
    said = f"none in the load, room for one of {rule.value:g} x {rule.value:g} pixels, {each:,} tokens"
    return each, {"images": f"{said}; --images counts them"}


def _gpu(request: PlanRequest) -> tuple[GpuFact, GpuMemory, str | None]:
    """(what is known of the GPU, its memory, the driver)."""
    host = request.host
    if request.gpu is None:
        assert host is not None
        memory = card.of_host(host, used_bytes=request.used_bytes)
        return gpus.find(memory.name), memory, host.driver_version
    fact = gpus.match(request.gpu).fact
    memory = card.named(request.gpu, used_bytes=request.used_bytes)
    # No CUDA: what runs there is told by the engines.
    return fact, memory, host.driver_version if host and fact.compute_capability else None


def _reserved(request: PlanRequest, memory: GpuMemory, fact: GpuFact) -> tuple[GpuMemory, str | None]:
    """Memory is left for a display unless somebody knows better."""
    if request.used_bytes is not None or request.gpu is None:
        return memory, None
    rule = card.shared_with(fact)
    if rule is None:
        return memory, None
    return replace(memory, used_bytes=int(rule.value)), f"{rule.value / 2**20:.0f} MiB, {rule.because}"


def _count(request: PlanRequest) -> int:
    wishes = request.wishes
    asked = (wishes.tensor_parallel or 1) * (wishes.pipeline_parallel or 1) * (wishes.data_parallel or 1)
    if request.gpus is not None:
        return request.gpus
    if request.gpu is None and request.host is not None:
        return max(1, len(request.host.gpus or ()))
    return asked


def for_cpu(options: Options) -> Plan:
    """The first of the variants for a machine without GPU, and that it is one of several."""
    chosen = options.plans[0] if options.plans else options.reference
    others = len(options.plans) - 1
    notes = (
        "there is no GPU here: this is a plan for the CPU; name a GPU with --gpu to plan for another machine",
        f"speed on a CPU is measured, not predicted: `mopt optimize` compares it with {max(others, 0)} more",
    )
    return replace(chosen, rejected=options.rejected, notes=notes)


def engine_name(text: str) -> str:
    """One spelling of the ways to write an engine: `llama.cpp`, `trt-llm`, `TensorRT-LLM`."""
    from model_optimizer.planner.fit import engine_name as spelled

    return spelled(text).replace(".", "_")


def implied(form: str | None) -> str | None:
    """The engine that a form of the command asks for; None when any engine has it."""
    return FORMS.get(form or "")


def emitted(plan: Plan, form: str) -> tuple[str, ...] | str:
    """The command of a plan in one form; a text for `ollama`. UsageError when it is for another engine."""
    engine = plugins.load(ENGINES, plan.engine)
    if not plan.command:
        raise UsageError(
            f"a plan for {plan.engine} has no command of its own",
            hint=("`--out plan.json`, then `mopt serve plan.json` starts it",),
        )
    if form == "command":
        return plan.command
    if form == "docker":
        if not hasattr(engine, "container"):
            raise UsageError(f"there is no image of {plan.engine} in the facts")
        return engine.container(plan, 8000)
    wanted = FORMS[form]
    if wanted != plan.engine:
        raise UsageError(
            f"the plan is for {plan.engine}, not for {wanted}",
            hint=(f"pass --engine {wanted} to plan for it",),
        )
    return engine.modelfile(plan) if form == "ollama" else plan.command


def measured_in(folder: Path) -> Mapping[tuple[str, str], float]:
    """(engine, scheme) -> requests a second, of the candidates of a run. UsageError when it is no run."""
    from model_optimizer.core import Measurement
    from model_optimizer.system import runs

    run = runs.open_run(folder)
    found: dict[tuple[str, str], float] = {}
    for name in run.candidates():
        plan = run.read(Plan, f"candidates/{name}/plan")
        measurement = run.read(Measurement, f"candidates/{name}/measurement")
        rates = [p.requests_per_s for p in measurement.points] if measurement else []
        known = [rate for rate in rates if rate is not None]
        if plan is not None and known:
            found[plan.engine, plan.scheme] = max(known)
    return found

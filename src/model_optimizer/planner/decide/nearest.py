"""When nothing is feasible: the nearest plans along each axis, each a whole plan of its own."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from model_optimizer.core import MoptError, Nearest, Plan
from model_optimizer.core.units import show_ms
from model_optimizer.facts import decisions, drivers, gpus, memory
from model_optimizer.facts.versions import key

from .candidates import PLAIN
from .question import Functions, No, PlanQuestion

LEAST_CONTEXT = 256
LESS_LOAD = 0.79
COUNTS = (2, 4, 8, 16)
MOST_GPUS = 2

Axis = Callable[[PlanQuestion, Functions, Sequence[No]], Iterator[tuple[str, str, PlanQuestion]]]


def look_around(question: PlanQuestion, functions: Functions, refused: Sequence[No]) -> tuple[Nearest, ...]:
    """At most one plan an axis, two for other GPUs."""
    from .decide import decide

    found, cards = list[Nearest](), set[str]()
    for axis in (_engine, _driver, _dtype, _bits, _context, _load, _latency, _gpus, _other):
        left = MOST_GPUS if axis is _other else 1
        for name, change, asked in axis(question, functions, refused):
            if name == "gpu" and change in cards:
                continue  # fewer of them do already
            try:
                plan = decide(asked, functions, nearest=False, play=False)
            except MoptError:
                continue
            if not plan.feasible:
                continue
            cards.add(change)
            found.append(Nearest(axis=name, change=_with_result(name, change, plan), plan=_short(plan)))
            left -= 1
            if not left:
                break
    return tuple(found)


def _with_result(axis: str, change: str, plan: Plan) -> str:
    if axis == "latency":
        found = plan.estimate
        named = (("TTFT", found.ttft_ms), ("TPOT", found.tpot_ms), ("E2E", found.e2e_ms))
        times = [f"{word} P99 {show_ms(spread.p99)}" for word, spread in named if spread.p99 is not None]
        if not times:
            return f"{change}: {plan.scheme} with {plan.engine}, whose speed is not known here"
        return f"{change}: {', '.join(times)}"
    if axis in ("gpus", "gpu"):
        tensor, stages = plan.tensor_parallel, plan.pipeline_parallel
        parallel = f" TP{tensor}" if tensor > 1 else ""
        parallel += f" PP{stages}" if stages > 1 else ""
        return f"{plan.gpus} x {change}: {plan.scheme}{parallel} with {plan.engine}"
    if axis == "dtype" and plan.scheme not in PLAIN:
        return f"computed as FP16, which needs weights in {plan.scheme} to fit: {plan.engine}"
    if axis in ("bits", "engine", "dtype"):
        return f"{change}: {plan.engine} in {plan.scheme}"
    return change


def _short(plan: Plan) -> Plan:
    """A near plan is shown without its own page of reasons."""
    return replace(plan, rejected=(), derivations=(), crossover=(), branch=())


def _engine(
    question: PlanQuestion, functions: Functions, refused: Sequence[No]
) -> Iterator[tuple[str, str, PlanQuestion]]:
    del functions, refused
    wishes = question.wishes
    if wishes.version:
        yield "engine", "another release", replace(question, wishes=replace(wishes, version=None))
    if wishes.engine:
        yield "engine", "another engine", replace(question, wishes=replace(wishes, engine=None, version=None))


def _driver(
    question: PlanQuestion, functions: Functions, refused: Sequence[No]
) -> Iterator[tuple[str, str, PlanQuestion]]:
    """The oldest long-term branch that runs the newest CUDA."""
    del functions
    if question.site.driver is None or not any(no.kind == "driver" for no in refused):
        return
    for branch in sorted(drivers.branches(), key=lambda b: (-b.cuda_major, key(b.branch.removeprefix("R")))):
        version = branch.branch.removeprefix("R")
        if branch.kind == "long-term" and key(version) > key(question.site.driver):
            site = replace(question.site, driver=version)
            yield (
                "driver",
                f"driver {version}, supported until {branch.end_of_life}",
                replace(question, site=site),
            )


def _dtype(
    question: PlanQuestion, functions: Functions, refused: Sequence[No]
) -> Iterator[tuple[str, str, PlanQuestion]]:
    del functions, refused
    wishes = question.wishes
    if wishes.dtype == "bf16" or wishes.scheme == "bf16":
        other = replace(wishes, dtype="fp16", scheme=None)
        yield "dtype", "16 bits as FP16", replace(question, wishes=other)


def _bits(
    question: PlanQuestion, functions: Functions, refused: Sequence[No]
) -> Iterator[tuple[str, str, PlanQuestion]]:
    del functions, refused
    wishes = question.wishes
    if wishes.scheme or wishes.dtype or wishes.kv_cache_dtype:
        free = replace(wishes, scheme=None, dtype=None, kv_cache_dtype=None)
        yield "bits", "another number format", replace(question, wishes=free)


def _context(
    question: PlanQuestion, functions: Functions, refused: Sequence[No]
) -> Iterator[tuple[str, str, PlanQuestion]]:
    """The longest context that any combination starts with; the load must still fit into it."""
    del functions
    lengths = sorted({no.length for no in refused if no.kind == "memory" and no.length}, reverse=True)
    work = question.workload
    needed = work.prompt_tokens.quantile(0.99) + (
        work.output_tokens.quantile(0.99) if question.generates else 0
    )
    for length in lengths[:2]:
        length = length // LEAST_CONTEXT * LEAST_CONTEXT
        if length >= max(needed, LEAST_CONTEXT):
            asked = replace(question, wishes=replace(question.wishes, max_model_len=length))
            yield "context", f"--max-model-len {length}", asked


def _load(
    question: PlanQuestion, functions: Functions, refused: Sequence[No]
) -> Iterator[tuple[str, str, PlanQuestion]]:
    del functions
    loads = [no.load for no in refused if no.load]
    best = max(loads, default=0.0)
    work = question.workload
    if best and work.qps:
        rate = float(f"{best * LESS_LOAD:.3g}")
        if rate < work.qps:
            yield "qps", f"--qps {rate:g}", replace(question, workload=replace(work, qps=rate))
    elif best >= 1 and work.concurrency and int(best) < work.concurrency:
        asked = replace(work, concurrency=int(best))
        yield "concurrency", f"--concurrency {int(best)}", replace(question, workload=asked)


def _latency(
    question: PlanQuestion, functions: Functions, refused: Sequence[No]
) -> Iterator[tuple[str, str, PlanQuestion]]:
    del functions
    kinds = {no.kind for no in refused}
    slo = question.slo
    if kinds & {"ttft_ms", "tpot_ms", "e2e_ms", "speed"}:
        free = replace(slo, ttft_ms=None, tpot_ms=None, e2e_ms=None)
        yield "latency", "without limits on latency", replace(question, slo=free)


def _gpus(
    question: PlanQuestion, functions: Functions, refused: Sequence[No]
) -> Iterator[tuple[str, str, PlanQuestion]]:
    """More of the same; a laptop has one."""
    del functions, refused
    if "Laptop" in question.gpu.name or question.gpu.shared_memory:
        return
    wishes = replace(question.wishes, tensor_parallel=None, pipeline_parallel=None, data_parallel=None)
    for count in COUNTS:
        if count > question.gpus and _roomy(question, count, question.card.total_bytes):
            asked = replace(question, gpus=count, wishes=wishes)
            yield "gpus", question.gpu.name, asked


def _other(
    question: PlanQuestion, functions: Functions, refused: Sequence[No]
) -> Iterator[tuple[str, str, PlanQuestion]]:
    """Other GPUs, the cheapest first; the fewest of each."""
    del functions
    if all(no.kind in ("driver", "task", "architecture") for no in refused):
        return  # another card would not help
    wishes = replace(question.wishes, tensor_parallel=None, pipeline_parallel=None, vram_bytes=None)
    for rung in decisions.ladder():
        if rung.gpu == question.gpu.name:
            continue
        fact = gpus.find(rung.gpu)
        total = memory.visible(fact)[0]
        roomy = [count for count in rung.counts if _roomy(question, count, total)]
        for count in dict.fromkeys((*roomy[:1], *roomy[-1:])):
            site = replace(
                question.site,
                gpu=fact.name,
                vendor=fact.vendor,
                compute_capability=fact.compute_capability,
                memory_bytes=total,
                driver=None,
                server=True,
                unsupported=fact.unsupported,
            )
            card = replace(
                question.card,
                name=fact.name,
                total_bytes=total,
                compute_capability=fact.compute_capability or (0, 0),
                used_bytes=0,
            )
            asked = replace(question, site=site, card=card, gpu=fact, gpus=count, wishes=wishes)
            yield "gpu", fact.name, asked


def _roomy(question: PlanQuestion, count: int, each: int) -> bool:
    """Whether the weights could fit at all, in the fewest bits that may be taken."""
    quantized = question.model.quantization
    bits = (quantized.weight_bits if quantized else None) or 4
    return question.model.parameters * bits / 8 < 0.95 * each * count

"""One candidate under the load: how many requests it takes, how many replicas that makes, or why not."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from model_optimizer.core import HostError, MoptError, Rejection, UsageError
from model_optimizer.core.steps import Batch, StepModel
from model_optimizer.core.units import show_count, show_ms
from model_optimizer.facts import decisions, speed
from model_optimizer.facts.gpus import GpuFact
from model_optimizer.planner.images import encoded
from model_optimizer.planner.memory import llama_cpp as memory
from model_optimizer.planner.memory.cache import held
from model_optimizer.planner.service import Limits
from model_optimizer.planner.speed import Setup, llama_cpp
from model_optimizer.planner.speed.roofline import sixteen_bit_rate

from . import steady
from .candidates import Candidate
from .grouped import grouped
from .place import Room, defaults, place, refit, rules_version, with_fp8_cache
from .question import Functions, No, PlanQuestion
from .steady import Shape, Steady

FIRST_SEQS = 256
ROUND_SEQS = 8
BATCHES = (512, 1024, 2048, 4096, 8192, 16384)
LLAMA = "llama_cpp"
WORDS = {"ttft_ms": "TTFT", "tpot_ms": "TPOT", "e2e_ms": "E2E"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """A candidate that keeps all limits. `capacity` is what one replica takes, None when speed is not known.

    `headroom` is the share of its capacity that the load leaves free; `steady` is one replica under its
    share of the load.
    """

    candidate: Candidate
    room: Room
    limits: Limits
    steps: StepModel | None
    capacity: float | None
    replicas: int
    spares: int
    data: int
    steady: Steady | None
    headroom: float | None = None
    notes: tuple[str, ...] = ()

    @property
    def gpus(self) -> int:
        return self.candidate.gpus * self.data * (self.replicas + self.spares)

    @property
    def loss(self) -> float:
        """The rank of what it costs in quality; the KV cache in 8 bits counts like half a step."""
        found = decisions.qualities().get(self.candidate.scheme.name)
        kv = 0.5 if self.room.kv_dtype not in ("auto", "f16") else 0.0
        return (found.loss if found else 9) + kv


def judge(question: PlanQuestion, functions: Functions, candidate: Candidate) -> Judged | No:
    """Memory first, then the load."""
    floor = question.slo.quality
    if floor is not None and candidate.scheme.gate.recovery < floor and candidate.scheme.weight_bits < 16:
        reached = f"its gate promises {candidate.scheme.gate.recovery:g} of the quality, {floor:g} is asked"
        return _no(candidate, reached, candidate.scheme.gate.source, kind="quality")
    work = question.workload
    first = FIRST_SEQS if work.concurrency is None else max(ROUND_SEQS, work.concurrency)
    room = place(question, functions, candidate, seqs=min(first, FIRST_SEQS))
    if isinstance(room, No):
        return room
    try:
        model = steps_of(question, functions, candidate, room)
    except HostError:
        raise
    except MoptError as error:
        if functions.steps_required:
            return _no(candidate, error.message, "--step-model", kind="step model")
        if question.site.compute_capability and candidate.engine != LLAMA:
            return _no(candidate, error.message, "planner/speed", kind="number format")
        return _unknown(question, candidate, room, error.message)
    return _under_load(question, functions, candidate, room, model)


def setup_of(question: PlanQuestion, candidate: Candidate, room: Room) -> Setup:
    known = candidate.engine in speed.engines()
    return Setup(
        model=question.model,
        gpu=question.gpu,
        scheme=candidate.scheme,
        engine=candidate.engine if known else "vllm",
        version=candidate.offer.version if known else None,
        kv_bits=8 if room.kv_dtype.startswith("fp8") else 16,
        tensor_parallel=candidate.tensor,
        pipeline_parallel=candidate.stages,
        expert_parallel=candidate.experts,
        eager=room.eager,
    )


def load_of(question: PlanQuestion) -> tuple[float, bool, str]:
    """(the load, whether it is a closed loop, its unit)."""
    work = question.workload
    if work.qps is not None and math.isfinite(work.qps):
        return work.qps, False, "requests/s"
    if work.arrivals == "burst" or work.qps is not None:
        return float(work.requests or 1), True, "requests at once"
    return float(work.concurrency or 1), True, "clients"


def limits_of(question: PlanQuestion, candidate: Candidate, room: Room) -> Limits:
    if candidate.engine == LLAMA:
        # Each slot has its share of the context from the start.
        return Limits(max_num_seqs=room.seqs, max_num_batched_tokens=room.batched)
    known = candidate.engine in speed.engines()
    engine = speed.engine(candidate.engine if known else "vllm")
    version = candidate.offer.version if known else None
    host = engine.at(version)
    return Limits(
        max_num_seqs=room.seqs,
        max_num_batched_tokens=room.batched,
        kv_cache_tokens=held(room.fit, question.model) if question.generates else None,
        cached_tokens=min(question.workload.shared_prefix, int(question.workload.prompt_tokens.mean) - 1),
        whole_prompts=engine.whole_prompts(version),
        mixed=host.mixed,
        ahead=host.overlap and question.generates,
        reserve=host.reserve if question.generates else 0.0,
        frontend_ms=host.frontend_ms,
        frontend_token_us=host.frontend_token_us,
        frontend_busy_ms=min(host.frontend_ms, speed.shared().frontend_busy_ms),
    )


def _under_load(
    question: PlanQuestion, functions: Functions, candidate: Candidate, room: Room, model: StepModel
) -> Judged | No:
    shape = steady.shape_of(question.workload, question.texts)
    load, closed, unit = load_of(question)
    data = side_by_side(question, candidate)
    limits = _widest(question, candidate, room)
    capacity = data * steady.most(model, limits, shape, question.slo, closed=closed)
    # Nobody set a limit: clients that find no room wait, and that is all that happens.
    patient = closed and not limited(question)
    if not patient and _starved(model, limits, shape, question, capacity, load, data):
        other = with_fp8_cache(functions, question, candidate, room)
        if other is not None:
            wider = _widest(question, candidate, other)
            steps = steps_of(question, functions, candidate, other)
            more = data * steady.most(steps, wider, shape, question.slo, closed=closed)
            if replicas_for(load, more, closed) < replicas_for(load, capacity, closed):
                room, limits, model, capacity = other, wider, steps, more
    if patient:
        capacity = max(capacity, load)
    if capacity <= 0:
        return _too_slow(candidate, model, limits, shape, question)
    return _sized(question, candidate, room, model, capacity, (load, closed, unit))


def side_by_side(question: PlanQuestion, candidate: Candidate) -> int:
    """Engines of a replica that each take a share of its load."""
    return candidate.ranks if candidate.ranks > 1 else question.wishes.data_parallel or 1


def steps_of(question: PlanQuestion, functions: Functions, candidate: Candidate, room: Room) -> StepModel:
    """Times of a step. MoptError where they are not known."""
    if candidate.engine == LLAMA:
        found = _llama_steps(question, functions, candidate, room)
        return _with_images(question, found, 1, llama_cpp.sixteen_bit_rate)
    setup = setup_of(question, candidate, room)
    if candidate.ranks == 1:
        found = functions.steps(setup)
    else:
        found = grouped(setup, candidate.ranks, functions.steps)
    return _with_images(question, found, candidate.tensor, sixteen_bit_rate)


def _with_images(
    question: PlanQuestion, found: StepModel, parts: int, rate: Callable[[GpuFact], float]
) -> StepModel:
    prompts = question.workload.prompt_tokens
    return encoded(found, question.image_operations, prompts, gpu=question.gpu, parts=parts, rate=rate)


def _llama_steps(question: PlanQuestion, functions: Functions, candidate: Candidate, room: Room) -> StepModel:
    """llama.cpp's own kernels, and a CPU for the layers that are left to it."""
    if functions.steps_required:
        raise UsageError("llama.cpp has steps of its own arithmetic only", hint=("leave --step-model out",))
    kind = question.wishes.kv_cache_dtype or "auto"
    size, numbers = memory.CACHE_TYPES.get(kind.lower(), memory.CACHE_TYPES["auto"])
    return llama_cpp.steps(
        question.gguf or memory.from_spec(question.model, candidate.scheme),
        question.model,
        question.gpu,
        layers=question.model.layers + 1 if room.gpu_layers is None else room.gpu_layers,
        cache_bits=8 * size / numbers,
    )


def limited(question: PlanQuestion) -> bool:
    """Whether any limit on latency was set."""
    slo = question.slo
    return any(limit is not None for limit in (slo.ttft_ms, slo.tpot_ms, slo.e2e_ms))


def _widest(question: PlanQuestion, candidate: Candidate, room: Room) -> Limits:
    """The limits with as many slots as the release would give: how many there are is decided afterwards."""
    limits = limits_of(question, candidate, room)
    if question.wishes.max_num_seqs or candidate.engine == LLAMA:
        return limits
    slots = max(defaults(question, rules_version(candidate)).seqs, room.seqs)
    return replace(limits, max_num_seqs=slots)


def _sized(
    question: PlanQuestion,
    candidate: Candidate,
    room: Room,
    model: StepModel,
    capacity: float,
    load: tuple[float, bool, str],
) -> Judged | No:
    """Replicas for the load with headroom, and the spares that were asked for."""
    amount, closed, unit = load
    data = side_by_side(question, candidate)
    there = question.gpus // (candidate.gpus * data)
    replicas, notes = replicas_for(amount, capacity, closed), tuple[str, ...]()
    least = max(1, math.ceil(amount / capacity - 1e-9))
    spares = question.wishes.spares or 0
    if replicas + spares > there and least + spares <= there:
        replicas = there - spares
        share = 1 - amount / (capacity * replicas)
        notes = (
            f"headroom is {share:.0%}, less than the {decisions.rule('headroom').value:.0%} that is advised",
        )
    if replicas + spares > there:
        needed = (replicas + spares) * candidate.gpus * data
        verb, are = "needs" if amount == 1 else "need", "is" if question.gpus == 1 else "are"
        reason = (
            f"one replica takes {show_count(capacity)} {unit}, {show_count(amount)} {verb} {needed} GPUs, "
            f"there {are} {question.gpus}"
        )
        return No(
            rejection=_rejection(candidate, reason, model.provenance),
            kind="gpus",
            short=float(needed - question.gpus),
            unit="GPUs",
            load=capacity * max(0, there - spares),
        )
    limits = limits_of(question, candidate, room)
    return Judged(
        candidate=candidate,
        room=room,
        limits=limits,
        steps=model,
        capacity=capacity,
        replicas=replicas,
        spares=spares,
        data=data,
        steady=None,
        headroom=1 - amount / (capacity * replicas),
        notes=notes,
    )


def with_spare(question: PlanQuestion, judged: Judged) -> Judged:
    """The choice with one replica more for when one dies, where nobody said how many and GPUs are left.

    It is added to what was chosen, and is no cost in the choice: it takes what would be idle.
    """
    each = judged.candidate.gpus * judged.data
    if question.wishes.spares is not None or judged.capacity is None or judged.replicas == 1:
        return judged
    return replace(judged, spares=1) if judged.gpus + each <= question.gpus else judged


def settle(question: PlanQuestion, functions: Functions, judged: Judged) -> Judged:
    """The same with sequences and tokens a step for its share of the load, and the steady state of it."""
    if judged.steps is None:
        return judged
    load, closed, _ = load_of(question)
    share = load / judged.replicas / judged.data
    candidate, model = judged.candidate, judged.steps
    room = _fitted(question, functions, candidate, judged.room, model, share, closed=closed)
    limits = limits_of(question, candidate, room)
    shape = steady.shape_of(question.workload, question.texts)
    found = (steady.at_concurrency if closed else steady.at_rate)(model, limits, shape, share)
    return replace(judged, room=room, limits=limits, steady=found)


def replicas_for(load: float, capacity: float, closed: bool) -> int:
    """A closed loop slows itself down, an open one does not: only that needs headroom."""
    if capacity <= 0:
        return 10**9
    return max(1, math.ceil(load / usable(capacity, closed) - 1e-9))


def usable(capacity: float, closed: bool) -> float:
    return capacity if closed else capacity * (1 - decisions.rule("headroom").value)


def _fitted(
    question: PlanQuestion,
    functions: Functions,
    candidate: Candidate,
    room: Room,
    model: StepModel,
    share: float,
    *,
    closed: bool,
) -> Room:
    """The sequences that Little's law asks for, and the tokens a step that keep TPOT; refitted in memory."""
    shape = steady.shape_of(question.workload, question.texts)
    found = (steady.at_concurrency if closed else steady.at_rate)(
        model, limits_of(question, candidate, room), shape, share
    )
    wishes = question.wishes
    seqs = wishes.max_num_seqs or sequences(question, room, found, share, closed=closed)
    batched = wishes.max_num_batched_tokens or batched_tokens(question, candidate, room, model, found, shape)
    if seqs == room.seqs and batched == room.batched:
        return room
    return refit(functions, question, candidate, room, seqs=seqs, batched=max(batched, seqs))


def in_flight(found: Steady, share: float, *, closed: bool) -> tuple[float, float]:
    """(mean, nearly never exceeded): Little's law, and Poisson's spread where arrivals are free."""
    if closed:
        return share, share
    mean = share * found.e2e_ms * 1e-3
    return mean, mean + decisions.rule("sigmas").value * math.sqrt(mean) + 1


def wanted_sequences(question: PlanQuestion, found: Steady, share: float, *, closed: bool) -> int:
    """Slots for all that may be in flight."""
    _, top = in_flight(found, share, closed=closed)
    spare = 1.0 if closed else decisions.rule("slots").value
    return max(ROUND_SEQS, math.ceil(top * spare * question.texts / ROUND_SEQS) * ROUND_SEQS)


def sequences(question: PlanQuestion, room: Room, found: Steady, share: float, *, closed: bool) -> int:
    """As many as are wanted, but no more than the KV cache has seats for."""
    wanted = wanted_sequences(question, found, share, closed=closed)
    if question.generates and room.fit.kv_cache_tokens:
        tokens = held(room.fit, question.model)
        seats = max(1, int(tokens / steady.shape_of(question.workload).context))
        wanted = min(wanted, seats)
    return max(1, wanted)


def batched_tokens(
    question: PlanQuestion, candidate: Candidate, room: Room, model: StepModel, found: Steady, shape: Shape
) -> int:
    """The release's default, unless TPOT asks for smaller steps of prompts."""
    limit = question.slo.tpot_ms
    known = max(defaults(question, rules_version(candidate)).batched, 1)
    start = min(room.batched, known) if room.steps else room.batched
    if limit is None or not shape.output:
        return start
    fitting = [n for n in BATCHES if n <= start and tail_tpot(model, found, shape, n) <= limit]
    return (
        max(fitting, default=min(start, BATCHES[0]))
        if tail_tpot(model, found, shape, start) > limit
        else start
    )


def tail_tpot(model: StepModel, found: Steady, shape: Shape, tokens: int) -> float:
    """P99 of a request's mean time a token when prompts of others come in steps of `tokens`.

    Of the steps of a request, k hold a chunk of somebody's prompt: k is Poisson with the mean
    rate x chunks a prompt x the request's time.
    """
    fresh = max(1.0, shape.prompt - shape.cached)
    size = min(float(tokens), fresh)
    plain = model.decode_ms(max(found.running, 1.0), shape.context)
    mixed = model.mixed_ms(
        Batch(
            sequences=max(found.running, 1.0),
            context=shape.context,
            tokens=size,
            chunks=1,
            pairs=size * (shape.cached + fresh / 2),
        )
    )
    met = found.rate * 1e-3 * (fresh / size) * shape.output * max(found.step_ms, plain)
    often = met + steady.Z99 * math.sqrt(met)
    return plain + often / max(1.0, shape.output) * max(0.0, mixed - plain)


def _starved(
    model: StepModel,
    limits: Limits,
    shape: Shape,
    question: PlanQuestion,
    capacity: float,
    load: float,
    data: int,
) -> bool:
    """Whether the KV cache is what bounds the replica, below the load. It seats at least one request."""
    if limits.kv_cache_tokens is None or capacity >= load or capacity <= 0:
        return False
    closed = load_of(question)[1]
    rate = capacity / data
    if closed:
        rate = steady.at_concurrency(model, limits, shape, max(1.0, rate)).rate
    more = steady.at_rate(model, limits, shape, 1.05 * max(rate, steady.LIGHT))
    return more.why is not None and "KV cache" in more.why


def _too_slow(
    candidate: Candidate, model: StepModel, limits: Limits, shape: Shape, question: PlanQuestion
) -> No:
    """Which limit breaks with one request alone, and by how much."""
    found = steady.at_rate(model, limits, shape, steady.LIGHT)
    if found.why:
        return _no(candidate, found.why, model.provenance, kind="memory")
    parts = steady.broken(found, question.slo)
    if not parts:
        return _no(candidate, "no load keeps the limits", model.provenance, kind="gpus")
    words = [
        f"{WORDS[name]} P{question.slo.percentile:g} is {show_ms(got)} "
        f"with one request alone, {limit:g} ms is asked"
        for name, got, limit in parts
    ]
    name, got, limit = max(parts, key=lambda part: part[1] / part[2])
    return No(
        rejection=_rejection(candidate, "; ".join(words), model.provenance),
        kind=name,
        short=got - limit,
        unit="ms",
    )


def _unknown(question: PlanQuestion, candidate: Candidate, room: Room, why: str) -> Judged | No:
    """Fits, but nothing honest can be said of its speed: no limit can be promised."""
    if limited(question):
        return _no(candidate, f"no latency can be promised: {why}", "planner/speed", kind="speed")
    limits = Limits(max_num_seqs=room.seqs, max_num_batched_tokens=room.batched)
    return Judged(
        candidate=candidate,
        room=room,
        limits=limits,
        steps=None,
        capacity=None,
        replicas=1,
        spares=0,
        data=1,
        steady=None,
        notes=(f"its speed is not predicted: {why}; measure it before you promise anything",),
    )


def _rejection(candidate: Candidate, reason: str, source: str) -> Rejection:
    return Rejection(
        engine=candidate.engine,
        scheme=candidate.scheme.name,
        parallel=candidate.parallel,
        reason=reason,
        source=source,
    )


def _no(candidate: Candidate, reason: str, source: str, *, kind: str) -> No:
    return No(rejection=_rejection(candidate, reason, source), kind=kind)

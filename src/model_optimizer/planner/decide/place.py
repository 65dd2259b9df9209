"""Memory of one candidate: what is tried, in which order, and what each step costs."""

import math
from dataclasses import dataclass, replace

from model_optimizer.core import Fit, FitQuestion, MoptError, Rejection
from model_optimizer.core.units import show_bytes
from model_optimizer.facts import decisions, formats, vllm

from .candidates import PLAIN, Candidate, own_scheme
from .question import Functions, No, PlanQuestion

LESS_STEP = (2048, 1024, 512)
LOWEST = 0.5
UTILIZATION_STEP = 0.02
GRAPHS_FIRST = 8
LENGTH_STEP = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """How a candidate is laid out in memory. `steps` says what had to be given up to make it fit,
    `notes` what was assumed for it."""

    fit: Fit
    length: int
    seqs: int
    batched: int
    utilization: float | None
    kv_dtype: str = "auto"
    eager: bool = False
    gpu_layers: int | None = None
    steps: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def spilled(self) -> bool:
        """Whether layers are left to the CPU."""
        return self.gpu_layers is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Defaults:
    """Of the release: tokens and sequences a step, share of the card."""

    batched: int
    seqs: int
    utilization: float


def defaults(question: PlanQuestion, version: str) -> Defaults:
    """Of vLLM's release; other engines borrow those of the newest."""
    release = vllm.release(version)
    tier = release.batch_for(memory_bytes=question.card.total_bytes, gpu=question.card.name)
    return Defaults(
        batched=tier.max_num_batched_tokens,
        seqs=tier.max_num_seqs,
        utilization=release.defaults.gpu_memory_utilization,
    )


def rules_version(candidate: Candidate) -> str:
    """The release of vLLM whose accounting is used: its own, else the newest known."""
    return candidate.offer.version if candidate.engine == "vllm" else vllm.versions()[-1]


def length_wanted(question: PlanQuestion) -> int:
    """Tokens that the longest request of the load takes, rounded up; room for a person beside it."""
    work, limit = question.workload, question.model.max_position
    if question.wishes.max_model_len:
        return question.wishes.max_model_len
    needed = work.prompt_tokens.quantile(0.999)
    if question.generates:
        needed += work.output_tokens.quantile(0.999) + question.image_room
    least = decisions.rule("least-context" if question.generates else "least-text")
    needed = max(needed, int(least.value))
    needed = math.ceil(needed / LENGTH_STEP) * LENGTH_STEP
    return min(needed, limit) if limit else needed


def kv_allowed(question: PlanQuestion, version: str) -> bool:
    """Whether the KV cache may be stored in 8 bits here."""
    capability = question.site.compute_capability or (0, 0)
    found = formats.support("kv_fp8", capability, vllm=version)
    found = formats.support("kv_fp8", capability) if found == "unknown" else found
    return question.generates and found in ("native", "weight-only")


def place(
    question: PlanQuestion,
    functions: Functions,
    candidate: Candidate,
    *,
    seqs: int,
    batched: int | None = None,
) -> Room | No:
    """The first layout that starts. A No says what is missing, by the last one tried."""
    if functions.engines[candidate.engine].MEMORY == "llama.cpp":
        return _layers(question, functions, candidate, seqs=seqs)
    base = _base(question, candidate, seqs=seqs, batched=batched)
    smallest = _least_weights(question, candidate)
    if smallest > question.card.total_bytes:
        have = question.card.total_bytes
        reason = f"weights of at least {show_bytes(smallest)} a GPU, it has {show_bytes(have)}"
        return _no(candidate, reason, short=smallest - have)
    last: Fit | None = None
    room_question = base
    for room_question, steps in _ladder(question, candidate, base):
        try:
            found = _try(functions, room_question)
        except MoptError as error:
            return _no(candidate, error.message)
        last = found[0]
        if last.fits:
            return _room(question, candidate, room_question, found, steps)
        if last.binding == "weights":
            break
    assert last is not None
    length = functions.fit(replace(room_question, longest=True)).largest_max_model_len
    return _no(candidate, f"does not fit: {last.because}", short=_missing(last), length=length)


def with_longest(functions: Functions, question: PlanQuestion, candidate: Candidate, room: Room) -> Room:
    """The same layout, with the longest context that would start: worth its time for what is chosen alone."""
    if functions.engines[candidate.engine].MEMORY == "llama.cpp":
        return room
    asked = _base(question, candidate, seqs=room.seqs, batched=room.batched)
    asked = replace(
        asked,
        kv_cache_dtype=room.kv_dtype,
        enforce_eager=room.eager,
        gpu_memory_utilization=room.utilization,
        longest=True,
    )
    try:
        found = functions.fit(asked)
    except MoptError:
        return room
    return replace(room, fit=replace(room.fit, largest_max_model_len=found.largest_max_model_len))


def refit(
    functions: Functions, question: PlanQuestion, candidate: Candidate, room: Room, **changes: int
) -> Room:
    """The same layout with other limits; the old one when the new does not start."""
    if room.spilled or functions.engines[candidate.engine].MEMORY == "llama.cpp":
        return room
    asked = _base(question, candidate, seqs=changes["seqs"], batched=changes["batched"])
    asked = replace(asked, kv_cache_dtype=room.kv_dtype, enforce_eager=room.eager)
    try:
        found = _try(functions, replace(asked, gpu_memory_utilization=room.utilization))
    except MoptError:
        return room
    if not found[0].fits:
        return room
    return replace(room, fit=found[0], seqs=changes["seqs"], batched=changes["batched"], utilization=found[1])


def with_fp8_cache(
    functions: Functions, question: PlanQuestion, candidate: Candidate, room: Room
) -> Room | None:
    """The same layout with the KV cache in 8 bits; None when that is not possible or was already done."""
    if room.kv_dtype != "auto" or room.spilled or question.wishes.kv_cache_dtype not in (None,):
        return None
    if not kv_allowed(question, rules_version(candidate)):
        return None
    asked = replace(_base(question, candidate, seqs=room.seqs, batched=room.batched), kv_cache_dtype="fp8")
    try:
        found = _try(functions, replace(asked, enforce_eager=room.eager))
    except MoptError:
        return None
    if not found[0].fits:
        return None
    steps = (*room.steps, "KV cache in 8 bits: twice the tokens in the same memory")
    return replace(room, fit=found[0], kv_dtype="fp8", utilization=found[1], steps=steps)


def _base(question: PlanQuestion, candidate: Candidate, *, seqs: int, batched: int | None) -> FitQuestion:
    wishes, scheme = question.wishes, candidate.scheme
    plain = scheme.name in PLAIN
    version = rules_version(candidate)
    if candidate.engine != "vllm":
        # vLLM's arithmetic is borrowed, not its kernels: whether the engine runs the scheme, it said itself.
        scheme = replace(scheme, max_compute_capability=None)
    return FitQuestion(
        model=question.model,
        gpu=question.card,
        engine="vllm",
        version=version,
        scheme=None if plain or scheme.name == own_scheme(question.model) else scheme,
        dtype=scheme.name if plain else None,  # pyright: ignore[reportArgumentType]
        kv_cache_dtype=wishes.kv_cache_dtype or "auto",
        tensor_parallel=candidate.tensor,
        pipeline_parallel=candidate.stages,
        data_parallel=candidate.ranks,
        expert_parallel=candidate.experts,
        max_model_len=length_wanted(question),
        max_num_seqs=wishes.max_num_seqs or seqs,
        max_num_batched_tokens=wishes.max_num_batched_tokens or batched,
        gpu_memory_utilization=wishes.gpu_memory_utilization or _utilization(question, version),
        block_size=wishes.block_size,
        enforce_eager=wishes.enforce_eager,
        vram_bytes=wishes.vram_bytes,
        mtp=wishes.speculation is not None and wishes.speculation.method == "mtp",
        draft=wishes.speculation.model if wishes.speculation else None,
        offload_bytes=wishes.kv_offload_bytes,
        env=wishes.env,
        longest=False,
    )


def _utilization(question: PlanQuestion, version: str) -> float | None:
    """The release's default, less where other processes hold memory. None when a budget in bytes decides."""
    if question.wishes.vram_bytes:
        return None
    default = defaults(question, version).utilization
    total, used = question.card.total_bytes, question.card.used_bytes
    free = (total - used) / total - decisions.rule("gpu-margin").value
    return round(min(default, math.floor(free * 100) / 100), 2) if used else default


def _ladder(
    question: PlanQuestion, candidate: Candidate, base: FitQuestion
) -> list[tuple[FitQuestion, tuple[str, ...]]]:
    """What is given up, the cheapest first: nothing, prompt tokens a step, KV bits, CUDA graphs."""
    rungs: list[tuple[FitQuestion, tuple[str, ...]]] = [(base, ())]
    asked, steps = base, tuple[str, ...]()
    known = defaults(question, base.version or "").batched
    if not question.wishes.max_num_batched_tokens:
        lower = [
            n
            for n in LESS_STEP
            if n < (base.max_num_batched_tokens or known) and n >= (base.max_num_seqs or 1)
        ]
        for tokens in lower[-2:]:
            steps = (
                f"{tokens:,} tokens a step instead of {known:,}: "
                "a smaller activation peak, longer prompts wait",
            )
            asked = replace(base, max_num_batched_tokens=tokens)
            rungs.append((asked, steps))
    if question.wishes.kv_cache_dtype is None and kv_allowed(question, base.version or ""):
        asked = replace(asked, kv_cache_dtype="fp8")
        steps = (*steps, "KV cache in 8 bits: twice the tokens in the same memory")
        rungs.append((asked, steps))
    if not question.wishes.enforce_eager and question.generates:
        asked = replace(asked, enforce_eager=True)
        rungs.append((asked, (*steps, "no CUDA graphs: the host launches every kernel of every step")))
    return rungs


def _try(functions: Functions, asked: FitQuestion) -> tuple[Fit, float | None]:
    """A fit, with the utilization lowered where graphs on top of the budget find no room."""
    share = asked.gpu_memory_utilization
    found = functions.fit(asked)
    while not found.fits and found.binding in ("cuda_graphs", "free_memory") and share and share > LOWEST:
        share = round(share - UTILIZATION_STEP, 2)
        found = functions.fit(replace(asked, gpu_memory_utilization=share))
    return found, share


def _room(
    question: PlanQuestion,
    candidate: Candidate,
    asked: FitQuestion,
    found: tuple[Fit, float | None],
    steps: tuple[str, ...],
) -> Room:
    known = defaults(question, rules_version(candidate))
    seqs = asked.max_num_seqs or known.seqs
    return Room(
        fit=found[0],
        length=asked.max_model_len or found[0].max_model_len,
        seqs=seqs,
        batched=asked.max_num_batched_tokens or max(known.batched, seqs),
        utilization=found[1],
        kv_dtype=asked.kv_cache_dtype,
        eager=asked.enforce_eager,
        steps=steps,
    )


def _layers(question: PlanQuestion, functions: Functions, candidate: Candidate, *, seqs: int) -> Room | No:
    """llama.cpp: all layers on the GPU, else as many as fit with the rest in host memory."""
    clients = min(question.workload.concurrency or GRAPHS_FIRST, GRAPHS_FIRST)
    slots = max(1, min(seqs, question.wishes.max_num_seqs or clients))
    total = question.model.layers + 1
    asked = FitQuestion(
        model=question.model,
        gguf=question.gguf,
        gpu=question.card,
        engine="llama.cpp",
        scheme=candidate.scheme,
        kv_cache_dtype=question.wishes.kv_cache_dtype or "auto",
        max_model_len=length_wanted(question),
        max_num_seqs=slots,
        vram_bytes=question.wishes.vram_bytes,
        longest=False,
    )

    def layers(count: int) -> Fit:
        return functions.fit(replace(asked, gpu_layers=count))

    try:
        whole = functions.fit(asked)
        if whole.fits:
            return Room(fit=whole, length=whole.max_model_len, seqs=slots, batched=512, utilization=None)
        low, high = 0, total
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if layers(middle).fits else (low, middle)
        part = layers(low)
    except MoptError as error:
        return _no(candidate, error.message)
    if low == 0 or not part.fits:
        return _no(candidate, f"does not fit: {whole.because}", short=_missing(whole))
    slo = question.slo
    if slo.ttft_ms or slo.tpot_ms or slo.e2e_ms:
        return _no(
            candidate, f"only {low} of {total} layers fit on the GPU: no latency can be promised for the rest"
        )
    rule = decisions.rule("host-memory")
    known = question.host_memory_bytes
    there = int(rule.value) if known is None else known
    have = (
        f"{show_bytes(there)} are there"
        if known is not None
        else (f"{show_bytes(there)} are assumed, {rule.because}")
    )
    if part.host_bytes > there:
        short = part.host_bytes - there
        reason = (
            f"{low} of {total} layers fit on the GPU, and the rest "
            f"needs {show_bytes(part.host_bytes)} of host memory, {have}"
        )
        return replace(_no(candidate, reason, short=short), unit="bytes of host memory")
    step = (
        f"{low} of {total} layers on the GPU, "
        f"{show_bytes(part.host_bytes)} in host memory, computed by the CPU"
    )
    notes = () if known is not None else (f"host memory: {have}",)
    return Room(
        fit=part,
        length=part.max_model_len,
        seqs=slots,
        batched=512,
        utilization=None,
        gpu_layers=low,
        steps=(step,),
        notes=notes,
    )


def _least_weights(question: PlanQuestion, candidate: Candidate) -> int:
    """A lower bound, to leave out what cannot fit without asking."""
    model, bits = question.model, candidate.scheme.weight_bits
    inner = model.parameters - model.embedding_parameters - model.head_parameters
    return inner * bits // 8 // candidate.whole


def _missing(found: Fit) -> float:
    """Bytes a GPU that one request of full length would need beyond the budget."""
    taken = sum(term.bytes for term in found.terms if term.name != "KV cache")
    return max(1.0, taken + found.kv_bytes_per_token * found.max_model_len - found.budget_bytes)


def _no(candidate: Candidate, reason: str, *, short: float | None = None, length: int | None = None) -> No:
    return No(
        rejection=Rejection(
            engine=candidate.engine,
            scheme=candidate.scheme.name,
            parallel=candidate.parallel,
            reason=reason,
            source="mopt fit, memory by arithmetic",
        ),
        kind="memory",
        short=short,
        unit="bytes a GPU",
        length=length,
    )

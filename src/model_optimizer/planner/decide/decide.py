"""From a question to a plan: look at every candidate, order them, play the best through, write it down."""

import heapq
import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from model_optimizer.core import Estimate, Plan, Rejection, Slo, Spread, Term
from model_optimizer.core.units import show_count, show_ms
from model_optimizer.facts import decisions
from model_optimizer.facts.decisions import Branch
from model_optimizer.planner.service import Question as Service

from .candidates import Candidate, best_offer, enumerate_all, loads_as_it_is
from .check import checked
from .fleet import crossover
from .judge import WORDS, Judged, judge, load_of, settle, with_spare
from .place import with_longest
from .question import Functions, No, PlanQuestion, remembering
from .steady import shape_of
from .write import write

MOST_PLAYED = 6
CLOSE = 1.02
BITS_OF_SPILL = 4
LAST = 99
LOST = (
    "its speed is not known",
    "leaves more layers to the CPU",
    "takes {} GPUs instead of {}",
    "costs more quality",
    "has no CUDA graphs",
    "comes later in the decision tree",
    "has to be made first",
    "has more stages",
    "shares layers between more GPUs",
    "needs engines that run in step",
    "takes less load, or longer for it",
)
"""What a feasible plan lost by, in the order of `_rank`."""
SPARED = "fewer GPUs for a replica already do more for each"


def decide(question: PlanQuestion, functions: Functions, *, nearest: bool = True, play: bool = True) -> Plan:
    """The plan; with `feasible` False, what binds and, unless `nearest` is off, what would be feasible.

    Without `play` the estimate is the steady state, which is quick. UsageError for contradictions.
    """
    if nearest:
        functions = replace(functions, fit=remembering(functions.fit))
    question = checked(question, functions)
    branch = decisions.branch(situation(question))
    candidates, refused = enumerate_all(question, functions)
    refused += _untried(question, functions, branch)
    spared = list[Candidate]()
    kept = _judge_all(question, functions, branch, candidates, refused, spared, once=not nearest)
    found = _play(question, functions, branch, kept, refused, play=play)
    if found is None and spared:
        more = list[Judged]()
        for candidate in spared:
            answer = judge(question, functions, candidate)
            (refused if isinstance(answer, No) else more).append(answer)  # pyright: ignore[reportArgumentType]
        kept, spared = [*kept, *more], []
        found = _play(question, functions, branch, more, refused, play=play)
    if found is None:
        return _infeasible(question, functions, refused, branch, nearest=nearest)
    first, judged, estimate = found
    lost = [no.judged for no in refused if no.judged is not None]
    others = [other for other in kept if other.candidate not in (first.candidate, *lost)]
    if play:
        judged = replace(judged, room=with_longest(functions, question, judged.candidate, judged.room))
    chosen = write(question, functions, with_spare(question, judged), estimate, branch)
    rejected = [*_outranked(question, branch, judged, others), *(no.rejection for no in refused)]
    rejected += [_reject(candidate, SPARED, "planner/speed") for candidate in spared]
    return replace(chosen, rejected=_grouped(rejected), crossover=crossover(question, judged, others))


def _play(
    question: PlanQuestion,
    functions: Functions,
    branch: Branch,
    kept: Sequence[Judged],
    refused: list[No],
    *,
    play: bool,
) -> tuple[Judged, Judged, Estimate] | None:
    """The first that keeps its limits when the load is played through: (as judged, settled, estimate).

    What breaks comes back with one more replica, in its place by cost. What would break as badly as one that
    was played is passed over; when nothing is left, the first of those are played after all.
    """
    count, off, over = itertools.count(), dict[str, float](), list[tuple[Judged, Judged, No]]()
    queue = [(_rank(question, branch, one), next(count), one, False) for one in kept]
    heapq.heapify(queue)
    played = 0
    while queue:
        _, _, first, again = heapq.heappop(queue)
        judged = settle(question, functions, first)
        failed, estimate = _full(judged), None
        if failed is None and not (again and played < MOST_PLAYED):
            failed = _scaled_break(question, judged, off)
        if failed is None:
            estimate = _estimate(question, functions, judged, play=play and played < MOST_PLAYED)
            failed = _broken(question, judged, estimate)
            if failed is None:
                refused += [replace(no, judged=one.candidate) for one, _, no in over]
                return first, judged, estimate
            played += 1
            _learn(off, judged, estimate)
        more = _one_more(question, first)
        if more is not None:
            heapq.heappush(queue, (_rank(question, branch, more), next(count), more, True))
        elif estimate is None and failed.kind != "gpus":
            over.append((first, judged, failed))
        else:
            refused.append(replace(failed, judged=first.candidate))
    for index, (first, judged, doubtful) in enumerate(over):
        failed = doubtful
        if play and index < MOST_PLAYED:
            estimate = _estimate(question, functions, judged, play=True)
            failed = _broken(question, judged, estimate)
            if failed is None:
                refused += [replace(no, judged=one.candidate) for one, _, no in over[index + 1 :]]
                return first, judged, estimate
        refused.append(replace(failed, judged=first.candidate))
    return None


def _one_more(question: PlanQuestion, judged: Judged) -> Judged | None:
    """The same with one more replica; None when there is no GPU for it, or a load of its own for each."""
    each = judged.candidate.gpus * judged.data
    load, closed, _ = load_of(question)
    if judged.gpus + each > question.gpus or (closed and judged.replicas >= load):
        return None
    return replace(judged, replicas=judged.replicas + 1)


def _judge_all(
    question: PlanQuestion,
    functions: Functions,
    branch: Branch,
    candidates: Sequence[Candidate],
    refused: list[No],
    spared: list[Candidate],
    *,
    once: bool,
) -> list[Judged]:
    """Engines in the order of the tree. One whose memory is that of an engine before it is worked out only
    when nothing before it is feasible: the same arithmetic would come to the same answer. With `once` it is
    not even then, which is enough to look around for what is feasible at all."""
    kept, modelled = list[Judged](), dict[str, str]()
    order = [*branch.leaf.order, *(name for name in functions.engines if name not in branch.leaf.order)]
    for name in order:
        own = [c for c in candidates if c.engine == name]
        if not own:
            continue
        rules = functions.engines[name].MEMORY
        if rules in modelled and (kept or once) and not question.measured:
            refused += [_later(candidate, modelled[rules]) for candidate in own]
            continue
        modelled.setdefault(rules, name)
        kept += _judge_engine(question, functions, own, refused, spared)
    return kept


def _judge_engine(
    question: PlanQuestion,
    functions: Functions,
    candidates: Sequence[Candidate],
    refused: list[No],
    spared: list[Candidate],
) -> list[Judged]:
    """Fewer GPUs first: once twice as many do not do twice as much, more of them are spared for later."""
    kept, best, done = list[Judged](), dict[str, float](), set[str]()
    for candidate in sorted(candidates, key=lambda c: (c.whole, c.ranks)):
        scheme = candidate.scheme.name
        if scheme in done:
            spared.append(candidate)
            continue
        answer = judge(question, functions, candidate)
        if isinstance(answer, No):
            refused.append(answer)
            continue
        kept.append(answer)
        each = (answer.capacity or 0.0) / (candidate.gpus * answer.data)
        if scheme in best and each < best[scheme] and not question.wishes.tensor_parallel:
            done.add(scheme)
        best[scheme] = max(each, best.get(scheme, 0.0))
    return kept


def _untried(question: PlanQuestion, functions: Functions, branch: Branch) -> list[No]:
    """ONNX Runtime has a place in the tree and no plan for GPUs: said, not passed over."""
    name = "onnxruntime"
    asked = question.wishes.engine in (None, name)
    if name not in branch.leaf.order or name in functions.engines or not asked:
        return []
    reason = "its CUDA provider was not tried here; `mopt optimize` serves it on the CPU"
    rejection = Rejection(engine=name, scheme="any", reason=reason, source="docs/tested.md")
    return [No(rejection=rejection, kind="task")]


def _later(candidate: Candidate, first: str) -> No:
    reason = f"no better than {first} by the arithmetic at hand, and nothing that was measured prefers it"
    rejection = Rejection(
        engine=candidate.engine, scheme=candidate.scheme.name, reason=reason, source="facts/decisions/tree"
    )
    return No(rejection=rejection, kind="task")


def situation(question: PlanQuestion) -> dict[str, str | float]:
    """The words that the decision tree asks for."""
    model, gpu, work = question.model, question.gpu, question.workload
    capability = question.site.compute_capability or (0, 0)
    keeps = any(group.kv_bytes_per_token_16 or group.state_bytes for group in model.groups)
    least = model.parameters * BITS_OF_SPILL / 8
    return {
        "vendor": gpu.vendor,
        "capability": capability[0] + capability[1] / 10,
        "task": model.task,
        "decoder": float(keeps),
        "fits": float(least < 0.9 * question.card.total_bytes * question.gpus),
        "geforce": float(is_geforce(question)),
        "build_minutes": question.build_minutes / max(1.0, question.changes_per_month),
        "changes_per_month": question.changes_per_month,
        "users": float(work.concurrency or 0),
        "prefix_share": work.shared_prefix / max(1.0, work.prompt_tokens.mean),
    }


def is_geforce(question: PlanQuestion) -> bool:
    return "GeForce" in question.gpu.name or question.gpu.name.startswith("RTX")


def _rank(question: PlanQuestion, branch: Branch, judged: Judged) -> tuple[float, ...]:
    """Cost, then quality, then simplicity: the place in the tree, stages, GPUs that share a layer."""
    order = branch.leaf.order
    engine = judged.candidate.engine
    place = order.index(engine) if engine in order else LAST
    if question.measured:
        rates = [rate for (name, _), rate in question.measured.items() if name == engine]
        place = -max(rates, default=0.0)
    known = 0.0 if judged.capacity is not None else 1.0
    return (
        known,
        _left(question, judged),
        judged.gpus,
        judged.loss,
        float(judged.room.eager),
        place,
        float(not loads_as_it_is(question.model, judged.candidate.scheme)),
        judged.candidate.stages,
        judged.candidate.tensor * judged.candidate.ranks,
        judged.candidate.ranks,
        _pace(question, judged),
    )


def _left(question: PlanQuestion, judged: Judged) -> float:
    """Layers on the CPU. Each costs so much time that fewer bits with fewer of them are the better answer."""
    inside = judged.room.gpu_layers
    return 0.0 if inside is None else float(question.model.layers + 1 - inside)


def _pace(question: PlanQuestion, judged: Judged) -> float:
    """What is left when all else is equal: less is better. Clients wait for their answers, so that how many
    there may be says nothing; how long a token takes them does."""
    load, closed, _ = load_of(question)
    if not closed or judged.steps is None or not question.generates:
        return -(judged.capacity or 0.0)
    share = min(load / judged.replicas / judged.data, float(judged.room.seqs))
    return judged.steps.decode_ms(max(share, 1.0), shape_of(question.workload).context)


def _outranked(
    question: PlanQuestion, branch: Branch, winner: Judged, others: Sequence[Judged]
) -> list[Rejection]:
    """Feasible combinations, and the first comparison that each of them lost."""
    best, found = _rank(question, branch, winner), list[Rejection]()
    for other in others:
        mine = _rank(question, branch, other)
        lost = next((i for i, (a, b) in enumerate(zip(mine, best, strict=True)) if a != b), len(LOST) - 1)
        reason = "feasible, but " + LOST[lost].format(other.gpus, winner.gpus)
        found.append(_row(other, reason, "cost, then quality, then simplicity"))
    return found


def _grouped(rejected: Sequence[Rejection]) -> tuple[Rejection, ...]:
    """One row for each combination and reason, in the order in which they came."""
    return tuple(dict.fromkeys(rejected))


def _estimate(question: PlanQuestion, functions: Functions, judged: Judged, *, play: bool) -> Estimate:
    terms = _terms(functions, judged)
    if judged.steps is None or judged.steady is None:
        return Estimate(memory=terms, provenance="; ".join(judged.notes) or "speed is not predicted")
    if not play:
        return _from_steady(question, judged, terms)
    work = question.workload
    if question.texts > 1 and work.qps:
        work = replace(work, qps=work.qps * question.texts)
    found = functions.estimate(
        Service(
            steps=judged.steps, limits=judged.limits, workload=work, replicas=judged.replicas * judged.data
        )
    )
    rate = found.requests_per_s
    per_request = rate / question.texts if rate is not None else None
    return replace(found, memory=terms, requests_per_s=per_request)


def _full(judged: Judged) -> No | None:
    """Whether the replica is full under its share once its limits are set."""
    if judged.steady is None or judged.steady.why is None:
        return None
    rejection = _row(judged, judged.steady.why, "steady state")
    return No(rejection=rejection, kind="gpus", load=judged.capacity)


def _learn(off: dict[str, float], judged: Judged, estimate: Estimate) -> None:
    """How much longer the played load takes than the steady state says, by quantity."""
    found = judged.steady
    if found is None:
        return
    for name, spread, quick in (
        ("ttft_ms", estimate.ttft_ms, found.ttft_p99_ms),
        ("tpot_ms", estimate.tpot_ms, found.tpot_p99_ms),
        ("e2e_ms", estimate.e2e_ms, found.e2e_p99_ms),
    ):
        if spread.p99 and quick:
            off[name] = spread.p99 / quick


def _scaled_break(question: PlanQuestion, judged: Judged, off: Mapping[str, float]) -> No | None:
    """Leaves out what would break as the ones did that were played, without playing it."""
    found, slo = judged.steady, question.slo
    if found is None or not off:
        return None
    for name, quick, limit in (
        ("ttft_ms", found.ttft_p99_ms, slo.ttft_ms),
        ("tpot_ms", found.tpot_p99_ms, slo.tpot_ms),
        ("e2e_ms", found.e2e_p99_ms, slo.e2e_ms),
    ):
        got = quick * off.get(name, 1.0)
        if limit is not None and got > limit * CLOSE:
            reason = f"{WORDS[name]} P{slo.percentile:g} would be about {show_ms(got)}, {limit:g} ms is asked"
            return No(
                rejection=_row(judged, reason, "steady state, corrected by a load that was played through"),
                kind=name,
                short=got - limit,
                unit="ms",
                load=judged.capacity,
            )
    return None


def _row(judged: Judged, reason: str, source: str) -> Rejection:
    return _reject(judged.candidate, reason, source)


def _reject(candidate: Candidate, reason: str, source: str) -> Rejection:
    return Rejection(
        engine=candidate.engine,
        scheme=candidate.scheme.name,
        parallel=candidate.parallel,
        reason=reason,
        source=source,
    )


def _terms(functions: Functions, judged: Judged) -> tuple[Term, ...]:
    """The memory term by term; rules that are borrowed from another engine are only assumed to hold."""
    engine, found = judged.candidate.engine, judged.room.fit
    if functions.engines[engine].MEMORY.replace(".", "_") == engine:
        return found.terms
    return tuple(
        replace(
            term,
            source="assumed",
            because=f"{term.because}; {found.engine}'s rule, {engine}'s own was not measured",
        )
        for term in found.terms
    )


def _from_steady(question: PlanQuestion, judged: Judged, terms: tuple[Term, ...]) -> Estimate:
    """The screening numbers as an Estimate; they have no interval."""
    found, steps = judged.steady, judged.steps
    assert found is not None and steps is not None
    count = judged.replicas * judged.data
    work, generates = question.workload, question.generates
    return Estimate(
        memory=terms,
        ttft_ms=Spread(mean=found.ttft_ms, p99=found.ttft_p99_ms) if generates else Spread(),
        tpot_ms=Spread(mean=found.tpot_ms, p99=found.tpot_p99_ms) if generates else Spread(),
        e2e_ms=Spread(mean=found.e2e_ms, p99=found.e2e_p99_ms),
        output_tokens_per_s=found.rate * count * work.output_tokens.mean if generates else None,
        input_tokens_per_s=found.rate * count * work.prompt_tokens.mean * question.texts,
        requests_per_s=found.rate * count,
        saturated=found.why is not None,
        provenance=f"steady state of {steps.provenance}",
    )


def _broken(question: PlanQuestion, judged: Judged, estimate: Estimate) -> No | None:
    """Whether the load that was played through breaks a limit after all."""
    reason, kind, short, unit = None, "gpus", None, None
    if estimate.saturated:
        load, _, words = load_of(question)
        done = estimate.requests_per_s or 0.0
        reason = f"saturated: {show_count(load)} {words} are asked, about {show_count(done)} can be done"
    for name, spread, limit in _limits(question.slo, estimate):
        got = at(spread, question.slo.percentile)
        if got is not None and got > limit:
            reason = (
                f"{WORDS[name]} P{question.slo.percentile:g} is "
                f"{show_ms(got)} under this load, {limit:g} ms is asked"
            )
            kind, short, unit = name, got - limit, "ms"
    if reason is None:
        return None
    rejection = _row(judged, reason, estimate.provenance)
    return No(rejection=rejection, kind=kind, short=short, unit=unit, load=judged.capacity)


def _limits(slo: Slo, estimate: Estimate) -> list[tuple[str, Spread, float]]:
    pairs = (
        ("ttft_ms", estimate.ttft_ms, slo.ttft_ms),
        ("tpot_ms", estimate.tpot_ms, slo.tpot_ms),
        ("e2e_ms", estimate.e2e_ms, slo.e2e_ms),
    )
    return [(name, spread, limit) for name, spread, limit in pairs if limit is not None]


def at(spread: Spread, percentile: float) -> float | None:
    """The place of a distribution that is the nearest known one at or above the asked."""
    return spread.p50 if percentile <= 50 and spread.p50 is not None else spread.p99


def _infeasible(
    question: PlanQuestion, functions: Functions, refused: Sequence[No], branch: Branch, *, nearest: bool
) -> Plan:
    """What binds is the constraint of the combination that came furthest."""
    from .nearest import look_around

    binding = binding_of(refused)
    engine = question.wishes.engine or branch.leaf.order[0]
    engine = engine if engine in functions.engines else next(iter(functions.engines))
    offer = best_offer(question, functions, engine)
    scheme = question.wishes.scheme or (question.model.dtype or "bf16")
    bare = Plan(
        feasible=False,
        model=question.model.name,
        checkpoint=question.checkpoint,
        gpu=question.site.gpu,
        gpus=question.gpus,
        host_digest=question.host_digest,
        workload=question.workload,
        slo=question.slo,
        engine=engine,
        engine_version=offer.version,
        image=offer.image,
        scheme=scheme,
        format="safetensors",
        rejected=_grouped([no.rejection for no in refused]),
        links=offer.links,
        branch=branch.path,
        binding=binding.kind if binding else "nothing to choose from",
        short_by=_rounded(binding.short) if binding else None,
        short_by_unit=binding.unit if binding else None,
        notes=(binding.rejection.reason,) if binding else (),
    )
    if not nearest:
        return bare
    return replace(bare, nearest=look_around(question, functions, refused))


STAGES = (
    "task", "api", "architecture", "gpu", "image", "driver", "number format", "quality", "memory",
    "step model", "speed",
)  # fmt: skip


def binding_of(refused: Sequence[No]) -> No | None:
    """The refusal of the combination that came furthest, the least short first."""
    if not refused:
        return None

    def far(no: No) -> tuple[int, float]:
        stage = STAGES.index(no.kind) if no.kind in STAGES else len(STAGES)
        return -stage, no.short if no.short is not None else math.inf

    return min(refused, key=far)


def _rounded(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.6g}")

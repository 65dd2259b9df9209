"""From steps to service: what a load will see of one or several replicas."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from model_optimizer.core import Estimate, Setting, Spread, Workload
from model_optimizer.core.steps import Batch, StepModel, StepTime
from model_optimizer.facts import speed
from model_optimizer.facts.speed import Accuracy

from . import loads
from .limits import Limits
from .loads import Load
from .loop import Outcome, Replica
from .summary import Numbers, summarize

# An open loop this near to what the replica can do has no steady state that is worth a number.
SATURATION = 0.97
FEWEST_ARRIVALS, MORE_ARRIVALS = 700, 2500
# More requests than this change nothing: a steady state stays what it is, and so does a burst's middle.
MOST_REQUESTS = 20_000
# Below this share of the capacity nobody meets anybody, whatever the rate.
IDLE = 1e-4
ENDS = 0.5
# The error of a request that is one step: no queue of prompts before it, as before a first token. Assumed.
ENCODER = 0.5
# A share of the time in which prompts wait for room, from which on the KV cache is what limits.
FULL = 0.2
KV = "KV capacity"
RATES = ("output_tokens_per_s", "input_tokens_per_s", "requests_per_s")


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One deployment under one load. `replicas` share the load evenly; `kv_source` says where
    `limits.kv_cache_tokens` is from."""

    steps: StepModel
    limits: Limits
    workload: Workload
    replicas: int = 1
    settings: tuple[Setting, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Scaled:
    """A StepModel that is slower or faster by a factor: the ends of an interval."""

    inner: StepModel
    factor: float
    kind: str = ""
    provenance: str = ""

    def prefill_ms(self, tokens: int, *, sequences: int = 1, cached: int = 0) -> float:
        return self.factor * self.inner.prefill_ms(tokens, sequences=sequences, cached=cached)

    def decode_ms(self, sequences: float, context: float) -> float:
        return self.factor * self.inner.decode_ms(sequences, context)

    def mixed_ms(self, batch: Batch) -> float:
        return self.factor * self.inner.mixed_ms(batch)

    def explain(self, batch: Batch) -> StepTime:
        return self.inner.explain(batch)


def estimate(question: Question) -> Estimate:
    """What the load will see. The workload has `qps`, `concurrency`, or a burst of `requests`."""
    if question.workload.arrivals == "burst":
        return _burst(question)
    if question.workload.qps is not None:
        return _open(question)
    return _closed(question)


def capacity(question: Question) -> tuple[Numbers, Outcome]:
    """What one replica does with more requests than it can take, in the steady state."""
    work, limits = question.workload, question.limits
    held = limits.max_num_seqs
    if limits.kv_cache_tokens is not None and work.task == "generate":
        each = work.prompt_tokens.mean + work.output_tokens.mean / 2
        held = min(held, max(1, int(limits.kv_cache_tokens / each)))
    crowd = max(2, min(round(1.3 * held) + 1, 700))
    return _run(question.steps, limits, loads.closed(replace(work, requests=None), crowd))


def _run(steps: StepModel, limits: Limits, load: Load) -> tuple[Numbers, Outcome]:
    outcome = Replica(steps, limits, load.requests, load.follow).run()
    return summarize(outcome, load), outcome


def _closed(question: Question) -> Estimate:
    work = question.workload
    each = max(1, -(-(work.concurrency or 1) // question.replicas))
    shared = replace(work, requests=None) if (work.requests or 0) > MOST_REQUESTS else work
    if shared.requests is not None and work.requests is not None:
        shared = replace(work, requests=max(1, -(-work.requests // question.replicas)))
    numbers, outcome = _run(question.steps, question.limits, loads.closed(shared, each))
    accuracy = speed.accuracy(question.steps.kind)
    interval = _scaled_intervals(numbers, accuracy, question.replicas, work)
    return _answer(question, numbers, outcome, interval, saturated=False)


def _burst(question: Question) -> Estimate:
    count = min(MOST_REQUESTS, max(1, -(-(question.workload.requests or 1) // question.replicas)))
    numbers, outcome = _run(question.steps, question.limits, loads.burst(question.workload, count))
    accuracy = speed.accuracy(question.steps.kind)
    wide = replace(accuracy, tpot=accuracy.burst_tpot, throughput=accuracy.burst_throughput)
    interval = _scaled_intervals(numbers, wide, question.replicas, question.workload)
    reason = "all requests arrive at once: a time to first token only says where a request stood in the queue"
    answer = _answer(question, numbers, outcome, interval, saturated=None)
    kept = {name: ends for name, ends in answer.interval.items() if not name.startswith(("ttft", "e2e"))}
    because = dict.fromkeys(("ttft_ms", "e2e_ms"), reason)
    return replace(answer, ttft_ms=Spread(), e2e_ms=Spread(), interval=kept, because=because)


def _open(question: Question) -> Estimate:
    qps = (question.workload.qps or 1.0) / question.replicas
    most, crowded = capacity(question)
    load = qps / most.requests_per_s
    if load >= SATURATION:
        return _saturated(question, most, crowded, load)
    numbers, outcome = _arrivals(question, question.steps, qps, load)
    accuracy = speed.accuracy(question.steps.kind)
    interval = _scaled_intervals(numbers, accuracy, question.replicas, question.workload)
    numbers = _at_rate(numbers, question)
    interval |= {name: (rate, rate) for name, rate in _rates(numbers, question).items() if name in interval}
    notes: tuple[str, ...] = ()
    slow, fast = math.exp(accuracy.tpot), math.exp(-accuracy.tpot)
    low, _ = _arrivals(question, Scaled(question.steps, fast), qps, load * fast, share=ENDS)
    if load * slow < SATURATION:
        high, _ = _arrivals(question, Scaled(question.steps, slow), qps, load * slow, share=ENDS)
        interval |= _between(low, high, numbers, accuracy, interval)
    else:
        notes = (
            f"the load is {load:.0%} of what the replica can do; at the slow end of the interval it "
            "saturates, so the waiting time has no upper end",
        )
        interval = {n: e for n, e in interval.items() if not n.startswith(("ttft", "e2e"))}
    answer = _answer(question, numbers, outcome, interval, saturated=False)
    spare = f"{load:.0%} of the {most.requests_per_s * question.replicas:.3g} requests/s that it can do"
    return replace(answer, notes=(*answer.notes, *notes, f"load: {spare}"))


def _at_rate(numbers: Numbers, question: Question) -> Numbers:
    """What is not saturated serves what arrives; the drawn arrivals only come near the rate."""
    work = question.workload
    qps = (work.qps or 0.0) / question.replicas
    return replace(
        numbers,
        requests_per_s=qps,
        input_tokens_per_s=qps * work.prompt_tokens.mean,
        output_tokens_per_s=qps * work.output_tokens.mean,
    )


def _rates(numbers: Numbers, question: Question) -> dict[str, float]:
    return {name: getattr(numbers, name) * question.replicas for name in RATES}


def _arrivals(
    question: Question, steps: StepModel, qps: float, load: float, *, share: float = 1.0
) -> tuple[Numbers, Outcome]:
    """`share` of the usual number of arrivals is enough for the ends of an interval."""
    count = question.workload.requests or int(FEWEST_ARRIVALS + MORE_ARRIVALS * min(load, 1.0) ** 4)
    count = min(MOST_REQUESTS, max(50, int(count * share)))
    seen = qps * max(1.0, IDLE / load)
    return _run(steps, question.limits, loads.opened(question.workload, seen, count))


def _saturated(question: Question, most: Numbers, outcome: Outcome, load: float) -> Estimate:
    """The rate that is reached; no waiting time, since the queue grows for as long as the load lasts."""
    accuracy = speed.accuracy(question.steps.kind)
    interval = _scaled_intervals(most, accuracy, question.replicas, question.workload)
    interval = {name: ends for name, ends in interval.items() if not name.startswith(("ttft", "e2e"))}
    answer = _answer(question, most, outcome, interval, saturated=True)
    asked, can = question.workload.qps or 0.0, most.requests_per_s * question.replicas
    reason = f"{asked:.3g} requests/s are asked, about {can:.3g} can be done: the queue grows without end"
    return replace(
        answer,
        ttft_ms=Spread(),
        e2e_ms=Spread(),
        because=dict.fromkeys(("ttft_ms", "e2e_ms"), reason),
        notes=(*answer.notes, f"saturated: {load:.0%} of what can be done"),
    )


def _answer(
    question: Question,
    numbers: Numbers,
    outcome: Outcome,
    interval: Mapping[str, tuple[float, float]],
    *,
    saturated: bool | None,
) -> Estimate:
    step = question.steps.explain(outcome.mean_batch())
    full = outcome.full_ms > FULL * outcome.ms or numbers.preempted > FULL
    generates = question.workload.task == "generate"
    notes = list(question.notes)
    if numbers.preempted > 0.01:
        notes.append(
            f"{numbers.preempted:.0%} of the requests lose their place in the KV cache and start again"
        )
    if outcome.slots_ms > FULL * outcome.ms:
        notes.append(f"max-num-seqs {question.limits.max_num_seqs} holds requests back")
    if outcome.unfinished:
        notes.append(f"{outcome.unfinished} requests are larger than the whole KV cache and never run")
    return Estimate(
        ttft_ms=numbers.ttft_ms if generates else Spread(),
        tpot_ms=numbers.tpot_ms if generates else Spread(),
        e2e_ms=numbers.e2e_ms,
        output_tokens_per_s=numbers.output_tokens_per_s * question.replicas if generates else None,
        input_tokens_per_s=numbers.input_tokens_per_s * question.replicas,
        requests_per_s=numbers.requests_per_s * question.replicas,
        saturated=saturated,
        bound=KV if full and generates else step.bound,
        provenance=question.steps.provenance,
        interval=interval,
        because={} if generates else _no_tokens(),
        settings=question.settings,
        step_ms={name: ms for name, ms in step.parts.items() if ms > 0},
        notes=tuple(notes),
    )


def _no_tokens() -> dict[str, str]:
    reason = "the model generates no tokens"
    return dict.fromkeys(("ttft_ms", "tpot_ms", "output_tokens_per_s"), reason)


def _scaled_intervals(
    numbers: Numbers, accuracy: Accuracy, replicas: int, work: Workload
) -> dict[str, tuple[float, float]]:
    """Where nothing queues, all times grow with the time of a step, and rates shrink with it."""
    generates = work.task == "generate"
    found: dict[str, tuple[float, float]] = {}
    for name, spread, error in (
        ("ttft_ms", numbers.ttft_ms if generates else Spread(), accuracy.ttft),
        ("tpot_ms", numbers.tpot_ms if generates else Spread(), accuracy.tpot),
        ("e2e_ms", numbers.e2e_ms, accuracy.throughput if generates else min(accuracy.ttft, ENCODER)),
    ):
        found |= _places(name, spread, error)
    for name in RATES:
        if generates or name != "output_tokens_per_s":
            found[name] = _ends(getattr(numbers, name) * replicas, accuracy.throughput)
    return found


def _places(name: str, spread: Spread, error: float) -> dict[str, tuple[float, float]]:
    values = {"": spread.mean, ".p50": spread.p50, ".mean": spread.mean, ".p99": spread.p99}
    return {f"{name}{place}": _ends(value, error) for place, value in values.items() if value is not None}


def _ends(value: float, error: float) -> tuple[float, float]:
    return value * math.exp(-error), value * math.exp(error)


def _between(
    low: Numbers, high: Numbers, middle: Numbers, accuracy: Accuracy, known: Mapping[str, object]
) -> dict[str, tuple[float, float]]:
    """Waiting times at the two ends of the step's interval, at least as wide as where nothing queues."""
    found: dict[str, tuple[float, float]] = {}
    for name, error in (("ttft_ms", accuracy.ttft), ("e2e_ms", accuracy.throughput)):
        if name not in known:
            continue
        plain = _places(name, getattr(middle, name), error)
        ends = _places(name, getattr(low, name), 0.0), _places(name, getattr(high, name), 0.0)
        for place, (below, above) in plain.items():
            if place in ends[0] and place in ends[1]:
                found[place] = min(below, ends[0][place][0]), max(above, ends[1][place][0])
    return found

"""From what happened to each request to the numbers that are asked for."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from model_optimizer.core import Spread

from .loads import Load
from .loop import Outcome, Request


@dataclass(frozen=True, slots=True, kw_only=True)
class Numbers:
    """Milliseconds and rates of one replica. `preempted` is the share of requests that lost their room."""

    ttft_ms: Spread
    tpot_ms: Spread
    e2e_ms: Spread
    output_tokens_per_s: float
    input_tokens_per_s: float
    requests_per_s: float
    preempted: float


def summarize(outcome: Outcome, load: Load) -> Numbers:
    """The numbers of the measured requests. Rates are over the time in which those finished."""
    done = [r for r in outcome.requests if r.last is not None]
    if not load.whole:
        done.sort(key=lambda r: r.sent)
    chosen = done if load.whole else done[load.skip : len(done) - load.drop] or done
    count, seconds = _finished(outcome, done, load)
    return Numbers(
        ttft_ms=spread([r.first - r.sent for r in chosen if r.first is not None]),
        tpot_ms=spread([_tpot(r) for r in chosen if r.output > 1]),
        e2e_ms=spread([(r.last or 0.0) - r.sent for r in chosen]),
        output_tokens_per_s=sum(r.output for r in count) / seconds,
        input_tokens_per_s=sum(r.prompt for r in count) / seconds,
        requests_per_s=len(count) / seconds,
        preempted=sum(1 for r in chosen if r.restarts) / max(len(chosen), 1),
    )


def spread(values: Sequence[float]) -> Spread:
    """Median, mean and 99th percentile by the nearest-rank rule; Nones when there is nothing."""
    if not values:
        return Spread()
    ordered = sorted(values)
    return Spread(p50=_rank(ordered, 0.5), mean=math.fsum(ordered) / len(ordered), p99=_rank(ordered, 0.99))


def _rank(ordered: list[float], q: float) -> float:
    return ordered[max(0, math.ceil(q * len(ordered)) - 1)]


def _tpot(request: Request) -> float:
    return ((request.last or 0.0) - (request.first or 0.0)) / (request.output - 1)


def _finished(outcome: Outcome, done: Sequence[Request], load: Load) -> tuple[list[Request], float]:
    """The requests that finish in the window that rates are over, and its seconds.

    It begins when the last request that does not count has finished and ends when the last one that counts
    has: whole rounds, also where the clients of a closed loop move in step.
    """
    if load.whole or load.skip < 1 or len(done) <= load.skip + load.drop:
        return list(done), outcome.ms / 1e3
    ordered = sorted(done, key=lambda r: r.last or 0.0)
    counted = ordered[load.skip : len(ordered) - load.drop]
    begin, end = ordered[load.skip - 1].last or 0.0, counted[-1].last or 0.0
    return (counted, (end - begin) / 1e3) if end > begin else (list(done), outcome.ms / 1e3)

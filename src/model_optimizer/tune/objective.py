"""What a measurement is worth: goodput under the SLO, energy, or cost."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from model_optimizer.core import LoadPoint, Slo
from model_optimizer.core.study import Objective, Score

LEAST_ATTAINED = 0.01
"""Below this share of requests within the limits, goodput says nothing and the excess is looked at."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Aim:
    """`cost_per_hour` is of all the GPUs of the plan, None when no price is known."""

    objective: Objective
    slo: Slo
    cost_per_hour: float | None = None


def score(points: Sequence[LoadPoint], aim: Aim) -> Score | None:
    """The best of the levels under the aim; None when nothing was measured."""
    found = [s for p in points if (s := _point(p, aim)) is not None]
    return max(found, key=lambda s: (s.value, s.signal)) if found else None


def _point(point: LoadPoint, aim: Aim) -> Score | None:
    rate = point.requests_per_s
    if not rate or not point.completed:
        return None
    # Of what began within the load: requests of the start, which all came at once, say nothing of it.
    attained = point.attainment if point.attainment is not None else 1.0
    goodput = rate * attained
    signal = math.log(rate) + math.log(max(attained, LEAST_ATTAINED / excess(point, aim.slo)))
    tokens = point.output_tokens_per_s or point.input_tokens_per_s
    per_joule = _per_joule(point, tokens)
    cost = None
    if aim.cost_per_hour is not None and tokens:
        cost = aim.cost_per_hour / (tokens * 3600) * 1e6
    return Score(
        value=_value(aim, goodput, per_joule, attained),
        signal=signal,
        goodput_per_s=goodput,
        level=point.target,
        output_tokens_per_s=tokens,
        tokens_per_joule=per_joule,
        cost_per_million=cost,
    )


def _per_joule(point: LoadPoint, tokens: float | None) -> float | None:
    if not point.energy_j or not tokens:
        return None
    return tokens * point.window_s / point.energy_j


def _value(aim: Aim, goodput: float, per_joule: float | None, attained: float) -> float:
    """Larger is better. Energy counts only where the SLO holds, cost is goodput for the money."""
    if aim.objective == "energy":
        return (per_joule or 0.0) if attained >= aim.slo.percentile / 100 else 0.0
    if aim.objective == "cost":
        return goodput / aim.cost_per_hour if aim.cost_per_hour else goodput
    return goodput


def excess(point: LoadPoint, slo: Slo) -> float:
    """How far the worst limit is missed at its percentile, as a factor; 1 when all hold."""
    pairs = ((point.ttft_ms, slo.ttft_ms), (point.tpot_ms, slo.tpot_ms), (point.e2e_ms, slo.e2e_ms))
    worst = 1.0
    for found, limit in pairs:
        if limit is None:
            continue
        seen = found.p99 if slo.percentile > 75 else found.p50
        seen = seen if seen is not None else found.mean
        if seen is not None:
            worst = max(worst, seen / limit)
    return worst


def pareto(scores: Sequence[tuple[int, Score]]) -> tuple[int, ...]:
    """Numbers of the trials that no other beats in goodput, energy and cost at once."""

    def axes(found: Score) -> tuple[float, float, float]:
        return (
            found.goodput_per_s,
            found.tokens_per_joule or 0.0,
            -(found.cost_per_million if found.cost_per_million is not None else 0.0),
        )

    kept: list[int] = []
    for number, mine in scores:
        own = axes(mine)
        beaten = any(
            all(b >= a for a, b in zip(own, axes(other), strict=True)) and axes(other) != own
            for _, other in scores
        )
        if not beaten:
            kept.append(number)
    return tuple(kept)

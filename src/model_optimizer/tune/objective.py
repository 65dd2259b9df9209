"""What a measurement is worth: goodput under the SLO, energy, or cost; under one shape of load or several."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from model_optimizer.core import LoadPoint, Slo
from model_optimizer.core.study import Objective, Over, Score

LEAST_ATTAINED = 0.01
"""Below this share of requests within the limits, goodput says nothing and the excess is looked at."""

LEAST = 1e-9
"""Stands for a value of zero, whose logarithm does not exist."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Aim:
    """`cost_per_hour` is of all the GPUs of the plan, None when no price is known.

    `over` says how the values of several shapes of load become one.
    """

    objective: Objective
    slo: Slo
    cost_per_hour: float | None = None
    over: Over = "mean"


def score(
    points: Sequence[LoadPoint],
    aim: Aim,
    shapes: Sequence[str] = (),
    base: Mapping[str, float] | None = None,
) -> Score | None:
    """The best of the levels under the aim; None when nothing was measured, or nothing under one shape.

    `shapes` names the shape of load of each point where there are several, `base` has the default's values.
    """
    if not shapes:
        return _best(points, aim)
    each: dict[str, Score] = {}
    for name in dict.fromkeys(shapes):
        found = _best([p for p, shape in zip(points, shapes, strict=True) if shape == name], aim)
        if found is None:
            return None
        each[name] = found
    return _joined(each, aim, base or {})


def best_levels(points: Sequence[LoadPoint], aim: Aim, shapes: Sequence[str] = ()) -> dict[str, float]:
    """The load at which each shape was worth most; one shape has an empty name."""
    names = shapes or [""] * len(points)
    found: dict[str, float] = {}
    for name in dict.fromkeys(names):
        own = [p for p, shape in zip(points, names, strict=True) if shape == name]
        rated = [(s.value, s.signal, p) for p in own if (s := _point(p, aim)) is not None]
        if rated:
            best = max(rated, key=lambda r: r[:2])[2]
            level = best.qps if best.concurrency is None else float(best.concurrency)
            found |= {name: level} if level is not None else {}
    return found


def _best(points: Sequence[LoadPoint], aim: Aim) -> Score | None:
    found = [s for p in points if (s := _point(p, aim)) is not None]
    return max(found, key=lambda s: (s.value, s.signal)) if found else None


def _joined(each: Mapping[str, Score], aim: Aim, base: Mapping[str, float]) -> Score:
    """Geometric means; for `worst` the lowest ratio to the default, in the unit of the default's mean."""
    scores = list(each.values())
    value, signal = _mean([s.value for s in scores]), fmean(s.signal for s in scores)
    if aim.over == "worst" and set(base) == set(each):
        middle = _mean(list(base.values()))
        value = middle * min(s.value / max(base[n], LEAST) for n, s in each.items())
        lowest = min(s.signal - math.log(max(base[n], LEAST)) for n, s in each.items())
        signal = lowest + math.log(max(middle, LEAST))
    return Score(
        value=value,
        signal=signal,
        goodput_per_s=_mean([s.goodput_per_s for s in scores]),
        level=", ".join(f"{s.level} ({name})" for name, s in each.items()),
        output_tokens_per_s=_mean_of([s.output_tokens_per_s for s in scores]),
        tokens_per_joule=_mean_of([s.tokens_per_joule for s in scores]),
        cost_per_million=_mean_of([s.cost_per_million for s in scores]),
        shapes={name: s.value for name, s in each.items()},
    )


def _mean(values: Sequence[float]) -> float:
    return math.exp(fmean(math.log(v) for v in values)) if min(values) > 0 else 0.0


def _mean_of(values: Sequence[float | None]) -> float | None:
    known = [v for v in values if v is not None]
    return _mean(known) if len(known) == len(values) else None


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

"""Loads at which another combination would need fewer GPUs."""

import math
from collections.abc import Sequence

from model_optimizer.core import Crossover
from model_optimizer.core.units import show_count
from model_optimizer.facts import decisions

from .judge import Judged, load_of
from .question import PlanQuestion

MOST_ROWS = 4
STEPS = 64
WORTH = 1.05
"""A replica that takes hardly more is no crossover: capacities are not known that well."""


def crossover(question: PlanQuestion, winner: Judged, others: Sequence[Judged]) -> tuple[Crossover, ...]:
    """For each other combination the lowest load above the asked one where it takes fewer GPUs, if any."""
    load, closed, unit = load_of(question)
    found: list[Crossover] = []
    for other in others:
        if other.capacity is None or winner.capacity is None or _same(other, winner):
            continue
        if other.gpus == winner.gpus and other.capacity < WORTH * winner.capacity:
            continue
        above = _first(winner, other, load, closed)
        if above is None:
            continue
        mine, theirs = (gpus_for(j, above * 1.001, closed) for j in (winner, other))
        candidate = other.candidate
        found.append(
            Crossover(
                above=float(f"{above:.3g}"),
                unit=unit,
                engine=candidate.engine,
                scheme=candidate.scheme.name,
                parallel=candidate.parallel,
                because=(
                    f"{theirs} GPU{'s' * (theirs > 1)} instead of {mine}: "
                    f"a replica takes {show_count(other.capacity)} {unit}"
                ),
            )
        )
    found.sort(key=lambda row: row.above)
    return tuple(found[:MOST_ROWS])


def gpus_for(judged: Judged, load: float, closed: bool) -> int:
    """GPUs for a load, without spares."""
    assert judged.capacity is not None
    usable = judged.capacity if closed else judged.capacity * (1 - decisions.rule("headroom").value)
    return max(1, math.ceil(load / usable - 1e-9)) * judged.candidate.gpus * judged.data


def _first(winner: Judged, other: Judged, load: float, closed: bool) -> float | None:
    """The winner's count grows at multiples of its capacity; only there can another one pass it."""
    assert winner.capacity is not None
    usable = winner.capacity if closed else winner.capacity * (1 - decisions.rule("headroom").value)
    start = max(1, math.ceil(load / usable - 1e-9))
    for count in range(start, start + STEPS):
        edge = count * usable
        if gpus_for(other, edge * 1.001, closed) < gpus_for(winner, edge * 1.001, closed):
            return edge
    return None


def _same(one: Judged, other: Judged) -> bool:
    return one.candidate == other.candidate and one.room.kv_dtype == other.room.kv_dtype

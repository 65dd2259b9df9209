"""Loads at which another combination would need fewer GPUs."""

from collections.abc import Sequence

from model_optimizer.core import Crossover
from model_optimizer.core.units import show_count

from .judge import Judged, load_of, replicas_for, usable
from .question import PlanQuestion

MOST_ROWS = 4
STEPS = 64
WORTH = 1.05
"""A replica that takes hardly more is no crossover: capacities are not known that well."""


def crossover(question: PlanQuestion, winner: Judged, others: Sequence[Judged]) -> tuple[Crossover, ...]:
    """For each other combination the lowest load above the asked one where it takes fewer GPUs, if any."""
    _, _, unit = load_of(question)
    found: list[Crossover] = []
    for other in others:
        if other.capacity is None or winner.capacity is None or _same(other, winner):
            continue
        if other.gpus == winner.gpus and other.capacity < WORTH * winner.capacity:
            continue
        above = _first(question, winner, other)
        if above is None:
            continue
        mine, theirs = (gpus_for(question, j, above * 1.001) for j in (winner, other))
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
                    f"a replica takes {show_count(other.capacity)} {unit}{_spares(question)}"
                ),
            )
        )
    found.sort(key=lambda row: row.above)
    return tuple(found[:MOST_ROWS])


def gpus_for(question: PlanQuestion, judged: Judged, load: float) -> int:
    """GPUs for a load, counted as in the choice: with the spares that were asked for, and no others."""
    assert judged.capacity is not None
    _, closed, _ = load_of(question)
    replicas = replicas_for(load, judged.capacity, closed) + (question.wishes.spares or 0)
    return replicas * judged.candidate.gpus * judged.data


def _first(question: PlanQuestion, winner: Judged, other: Judged) -> float | None:
    """The winner's count grows at multiples of its capacity; only there can another one pass it."""
    assert winner.capacity is not None
    load, closed, _ = load_of(question)
    start = replicas_for(load, winner.capacity, closed)
    for count in range(start, start + STEPS):
        edge = count * usable(winner.capacity, closed)
        if gpus_for(question, other, edge * 1.001) < gpus_for(question, winner, edge * 1.001):
            return edge
    return None


def _spares(question: PlanQuestion) -> str:
    count = question.wishes.spares
    if count is None:
        return "; spares are not counted"
    return f"; {count} spare{'s' * (count > 1)} counted" if count else ""


def _same(one: Judged, other: Judged) -> bool:
    return one.candidate == other.candidate and one.room.kv_dtype == other.room.kv_dtype

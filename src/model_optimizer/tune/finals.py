"""The second look: finalists against the default in turn, and what is lost when a setting is put back.

All arms run in one interleaved sequence, each run with a start of its own, so that a host that gets slower
or faster meanwhile does so to all of them alike.
"""

import random
from collections.abc import Mapping, Sequence

from model_optimizer.core import ratios
from model_optimizer.core.study import Contribution, Duel, Settings

LEAST = 1e-9
"""Stands for a value of zero, whose logarithm does not exist."""


def order(arms: int, repeats: int, seed: int) -> list[int]:
    """Which arm runs when: every arm once a round, each round in an order of its own."""
    draw = random.Random(seed)
    sequence: list[int] = []
    for _ in range(repeats):
        round_ = list(range(arms))
        draw.shuffle(round_)
        sequence += round_
    return sequence


def duel(a: Settings, b: Settings, a_values: Sequence[float], b_values: Sequence[float]) -> Duel:
    """Is b better than a? Undecided when the interval of the ratio holds 1, or too few runs succeeded."""
    if not a_values or not b_values:
        return _duel(a, b, a_values, b_values, because="one of them gave no value")
    if max(a_values) <= 0 and max(b_values) <= 0:
        return _duel(a, b, a_values, b_values, because="neither met the limits in any run")
    first, second = ([max(v, LEAST) for v in values] for values in (a_values, b_values))
    found = ratios.ratio(first, second)
    if found.low is None or found.high is None:
        because = "one run of each says nothing about the spread"
        return _duel(a, b, a_values, b_values, because=because, ratio=found.value)
    if not found.decided:
        decision, because = "undecided", "the interval of the ratio holds 1"
    else:
        decision = "better" if found.value > 1 else "worse"
        because = "the interval of the ratio lies on one side of 1"
    return Duel(
        a=a,
        b=b,
        a_values=tuple(a_values),
        b_values=tuple(b_values),
        ratio=found.value,
        interval=(found.low, found.high),
        decision=decision,
        because=because,
        runs_needed=None if found.decided else ratios.runs_needed(first, second),
    )


def _duel(
    a: Settings,
    b: Settings,
    a_values: Sequence[float],
    b_values: Sequence[float],
    *,
    because: str,
    ratio: float | None = None,
) -> Duel:
    return Duel(
        a=a,
        b=b,
        a_values=tuple(a_values),
        b_values=tuple(b_values),
        ratio=ratio,
        interval=None,
        decision="undecided",
        because=because,
    )


def contributions(
    winner: Settings,
    default: Settings,
    put_back: Sequence[str],
    winner_values: Sequence[float],
    values: Mapping[str, Sequence[float]],
) -> tuple[Contribution, ...]:
    """For each setting of `put_back`: the winner (b) beside the winner without it (a)."""
    found: list[Contribution] = []
    for name in put_back:
        without = {**winner, name: default[name]}
        found.append(
            Contribution(
                name=name,
                value=winner[name],
                back_to=default[name],
                verdict=duel(without, winner, values.get(name, ()), winner_values),
            )
        )
    return tuple(found)

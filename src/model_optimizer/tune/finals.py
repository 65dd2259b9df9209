"""Verdicts on arms that were measured in turn."""

import random
from collections.abc import Sequence

from model_optimizer.core import ratios
from model_optimizer.core.study import Decision, Duel, FinalRun, Settings, ShapeRatio

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


def duel(
    a: Settings,
    b: Settings,
    a_runs: Sequence[FinalRun],
    b_runs: Sequence[FinalRun],
    *,
    resident: bool = False,
) -> Duel:
    """Is b better than a? Undecided when the interval of the ratio holds 1, or too few runs succeeded."""
    one, two = _values(a_runs), _values(b_runs)
    first, second = ([max(v, LEAST) for v in values] for values in (one, two))
    found, needed = None, None
    decision: Decision = "undecided"
    if not one or not two:
        because = "one of them gave no value"
    elif max(one) <= 0 and max(two) <= 0:
        because = "neither met the limits in any run"
    else:
        found = ratios.ratio(first, second)
        decision = _decision(found)
        if found.low is None:
            because = "one run of each says nothing about the spread"
        elif decision == "undecided":
            because, needed = "the interval of the ratio holds 1", ratios.runs_needed(first, second)
        else:
            because = "the interval of the ratio lies on one side of 1"
    return Duel(
        a=a,
        b=b,
        a_values=tuple(one),
        b_values=tuple(two),
        ratio=found.value if found else None,
        interval=_interval(found),
        decision=decision,
        because=because,
        runs_needed=needed,
        resident=resident,
        shapes=_by_shape(a_runs, b_runs),
    )


def _by_shape(a_runs: Sequence[FinalRun], b_runs: Sequence[FinalRun]) -> tuple[ShapeRatio, ...]:
    """The ratio under each shape of load that both were measured under."""
    made: list[ShapeRatio] = []
    for name in dict.fromkeys(name for run in a_runs for name in run.by_shape):
        one, two = (
            [max(run.by_shape[name], LEAST) for run in runs if name in run.by_shape]
            for runs in (a_runs, b_runs)
        )
        if one and two and max(*one, *two) > LEAST:
            found = ratios.ratio(one, two)
            made.append(
                ShapeRatio(
                    shape=name, ratio=found.value, interval=_interval(found), decision=_decision(found)
                )
            )
    return tuple(made)


def _values(runs: Sequence[FinalRun]) -> list[float]:
    return [run.value for run in runs if run.value is not None]


def _interval(found: ratios.Ratio | None) -> tuple[float, float] | None:
    if found is None or found.low is None or found.high is None:
        return None
    return found.low, found.high


def _decision(found: ratios.Ratio) -> Decision:
    if not found.decided:
        return "undecided"
    return "better" if found.value > 1 else "worse"

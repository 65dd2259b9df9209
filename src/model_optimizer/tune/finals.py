"""Verdicts on arms that were measured in turn.

The rule: where the servers of both arms stood by each other and at least `LEAST_PAIRS` rounds measured both,
the interval of the pairs decides, and Welch's is shown beside it. Everywhere else Welch's interval decides.
One of the two is chosen by how the runs were made, never by what they say.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

from model_optimizer.core import ratios
from model_optimizer.core.study import Decision, Duel, FinalRun, Paired, Settings, ShapeRatio

LEAST = 1e-9
"""Stands for a value of zero, whose logarithm does not exist."""

LEAST_PAIRS = 4
"""So many pairs before their interval decides: fewer leave Student's t too little to stand on. ASSUMED."""


def order(arms: int, repeats: int, seed: int) -> list[int]:
    """Which arm runs when: every arm once a round, each round in an order of its own."""
    draw = random.Random(seed)
    sequence: list[int] = []
    for _ in range(repeats):
        round_ = list(range(arms))
        draw.shuffle(round_)
        sequence += round_
    return sequence


def with_rounds(runs: Sequence[FinalRun]) -> tuple[FinalRun, ...]:
    """The runs of an older study, which did not record the round: it follows from the turn."""
    arms = {
        kind: len({tuple(sorted(run.settings.items())) for run in runs if run.resident == kind})
        for kind in (True, False)
    }
    return tuple(run if run.round else replace(run, round=run.turn // arms[run.resident] + 1) for run in runs)


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
    found: _Compared | None = None
    if not one or not two:
        because = "one of them gave no value"
    elif max(one) <= 0 and max(two) <= 0:
        because = "neither met the limits in any run"
    else:
        found = _compared(one, two, _pairs(a_runs, b_runs, None) if resident else [])
        because = found.because
    return Duel(
        a=a,
        b=b,
        a_values=tuple(one),
        b_values=tuple(two),
        ratio=found.welch.value if found else None,
        interval=_interval(found.welch) if found else None,
        decision=found.decision if found else "undecided",
        because=because,
        runs_needed=found.needed if found and found.decision == "undecided" else None,
        resident=resident,
        shapes=_by_shape(a_runs, b_runs, resident=resident),
        paired=_paired(found) if found else None,
        decided_by="paired" if found and found.by_pairs else "welch",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Compared:
    """Both intervals of one ratio; `by_pairs` says which of them decides."""

    welch: ratios.Ratio
    pairs: ratios.Ratio | None
    count: int
    by_pairs: bool
    needed: int | None

    @property
    def deciding(self) -> ratios.Ratio:
        return self.pairs if self.by_pairs and self.pairs is not None else self.welch

    @property
    def decision(self) -> Decision:
        if not self.deciding.decided:
            return "undecided"
        return "better" if self.deciding.value > 1 else "worse"

    @property
    def because(self) -> str:
        if self.deciding.low is None:
            return "one run of each says nothing about the spread"
        whose = f"the interval of {self.count} pairs" if self.by_pairs else "the interval of the ratio"
        return f"{whose} {'holds' if self.decision == 'undecided' else 'lies on one side of'} 1"


def _compared(a: Sequence[float], b: Sequence[float], pairs: Sequence[tuple[float, float]]) -> _Compared:
    """Values below `LEAST` count as that."""
    one, two = ([max(v, LEAST) for v in values] for values in (a, b))
    first, second = ([max(pair[side], LEAST) for pair in pairs] for side in (0, 1))
    by_pairs = len(pairs) >= LEAST_PAIRS
    return _Compared(
        welch=ratios.ratio(one, two),
        pairs=ratios.paired(first, second) if len(pairs) > 1 else None,
        count=len(pairs),
        by_pairs=by_pairs,
        needed=ratios.pairs_needed(first, second) if by_pairs else ratios.runs_needed(one, two),
    )


def _pairs(
    a_runs: Sequence[FinalRun], b_runs: Sequence[FinalRun], shape: str | None
) -> list[tuple[float, float]]:
    """Values of the same round and sitting: servers that were started again are not those of before."""
    one, two = ({(r.sitting, r.round): r for r in runs if r.round} for runs in (a_runs, b_runs))
    values = [(_value(one[key], shape), _value(two[key], shape)) for key in sorted(one.keys() & two.keys())]
    return [(x, y) for x, y in values if x is not None and y is not None]


def _value(run: FinalRun, shape: str | None) -> float | None:
    return run.value if shape is None else run.by_shape.get(shape)


def _by_shape(
    a_runs: Sequence[FinalRun], b_runs: Sequence[FinalRun], *, resident: bool
) -> tuple[ShapeRatio, ...]:
    """The ratio under each shape of load that both were measured under."""
    made: list[ShapeRatio] = []
    for name in dict.fromkeys(name for run in a_runs for name in run.by_shape):
        one, two = ([run.by_shape[name] for run in runs if name in run.by_shape] for runs in (a_runs, b_runs))
        if one and two and max(*one, *two) > LEAST:
            found = _compared(one, two, _pairs(a_runs, b_runs, name) if resident else [])
            made.append(
                ShapeRatio(
                    shape=name,
                    ratio=found.welch.value,
                    interval=_interval(found.welch),
                    decision=found.decision,
                    paired=_paired(found),
                )
            )
    return tuple(made)


def _values(runs: Sequence[FinalRun]) -> list[float]:
    return [run.value for run in runs if run.value is not None]


def _paired(found: _Compared) -> Paired | None:
    interval = _interval(found.pairs) if found.pairs else None
    if found.pairs is None or interval is None:
        return None
    return Paired(ratio=found.pairs.value, interval=interval, pairs=found.count)


def _interval(found: ratios.Ratio) -> tuple[float, float] | None:
    return None if found.low is None or found.high is None else (found.low, found.high)

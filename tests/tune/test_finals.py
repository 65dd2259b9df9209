"""Verdicts of two arms, and what each setting contributed."""

import gzip
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from model_optimizer.core import codec
from model_optimizer.core.study import Duel, FinalRun, Settings, Study
from model_optimizer.tune import finals

RECORDED = Path(__file__).parents[2] / "evidence" / "tune-h200" / "study-2026-11-30-second.json.gz"


def runs(values: Sequence[float | None], **shapes: Sequence[float]) -> list[FinalRun]:
    return [
        FinalRun(turn=i, settings={}, value=value, by_shape={name: each[i] for name, each in shapes.items()})
        for i, value in enumerate(values)
    ]


def duel(a: Sequence[float | None], b: Sequence[float | None]) -> Duel:
    return finals.duel({}, {}, runs(a), runs(b))


def test_clear_differences_are_decided_and_noise_is_not() -> None:
    better = duel([10, 10.1, 9.9], [12, 12.2, 11.9])
    worse = duel([12, 12.2, 11.9], [10, 10.1, 9.9])
    noise = duel([10, 11, 9], [10.4, 11.2, 9.3])
    assert (better.decision, worse.decision, noise.decision) == ("better", "worse", "undecided")
    assert noise.runs_needed is not None and noise.runs_needed > 3


def test_one_run_decides_nothing() -> None:
    assert duel([10], [20]).decision == "undecided"


def test_no_goodput_at_all_decides_nothing() -> None:
    assert duel([0, 0], [0, 0]).decision == "undecided"


def test_from_no_goodput_to_some_is_better() -> None:
    assert duel([0, 0, 0], [5, 5.1, 4.9]).decision == "better"


def test_every_arm_runs_once_a_round() -> None:
    found = finals.order(3, 4, seed=1)
    assert all(sorted(found[i : i + 3]) == [0, 1, 2] for i in range(0, 12, 3))
    assert found != sorted(found)


def test_runs_that_failed_are_left_out_and_none_at_all_is_said() -> None:
    assert duel([10, None, 10.1], [12, 12.1, None]).a_values == (10, 10.1)
    none = duel([None], [12, 12.1])
    assert none.ratio is None and "no value" in none.because


def test_the_ratio_is_also_said_for_each_shape_of_load() -> None:
    a = runs([10, 10.1, 9.9], chat=[10, 10.1, 9.9], mixed=[5, 5.1, 4.9])
    b = runs([12, 12.1, 11.9], chat=[20, 20.1, 19.9], mixed=[4, 4.05, 3.95])
    found = {part.shape: part for part in finals.duel({}, {}, a, b).shapes}
    assert (found["chat"].decision, found["mixed"].decision) == ("better", "worse")
    assert abs(found["chat"].ratio - 2) < 0.02


# -- pairs of one round


def rounds(values: Sequence[float | None], sittings: Sequence[int] | None = None) -> list[FinalRun]:
    sittings = sittings or [1] * len(values)
    return [
        replace(run, round=i + 1, resident=True, sitting=sitting)
        for i, (run, sitting) in enumerate(zip(runs(values), sittings, strict=True))
    ]


SLOWED = (20.0, 30.0, 15.0, 24.0)
"""A machine whose speed changes from round to round by more than the arms differ."""


def gained(by: float, values: Sequence[float] = SLOWED) -> list[float]:
    return [v * by * wobble for v, wobble in zip(values, (1.01, 0.99, 1.0, 1.005), strict=False)]


def test_what_a_round_has_in_common_is_not_in_the_pairs() -> None:
    found = finals.duel({}, {}, rounds(SLOWED), rounds(gained(1.1)), resident=True)
    assert found.interval is not None and found.interval[0] < 1 < found.interval[1]
    assert found.paired is not None and found.paired.pairs == 4
    assert 1.07 < found.paired.interval[0] < 1.1 < found.paired.interval[1] < 1.13
    assert (found.decision, found.decided_by, found.deciding) == ("better", "paired", found.paired.interval)
    assert "4 pairs" in found.because and found.runs_needed is None


def test_three_pairs_are_shown_and_decide_nothing() -> None:
    found = finals.duel({}, {}, rounds(SLOWED[:3]), rounds(gained(1.1, SLOWED[:3])), resident=True)
    assert found.paired is not None and found.paired.interval[0] > 1
    assert (found.decision, found.decided_by, found.deciding) == ("undecided", "welch", found.interval)


def test_servers_that_start_for_every_run_are_not_paired() -> None:
    found = finals.duel({}, {}, rounds(SLOWED), rounds(gained(1.1)))
    assert found.paired is None and (found.decision, found.decided_by) == ("undecided", "welch")


def test_pairs_that_say_nothing_decide_so_even_where_welch_would_decide() -> None:
    """The rule is chosen by how the runs were made: the smaller of two intervals is not picked."""
    a, b = [10.0, 10.4, 10.0, 10.4], [11.4, 10.6, 11.4, 10.6]
    found = finals.duel({}, {}, rounds(a), rounds(b), resident=True)
    assert found.interval is not None and found.interval[0] > 1
    assert found.decision == "undecided" and found.decided_by == "paired"
    assert found.runs_needed is not None and found.runs_needed > 4


def test_only_runs_of_one_round_and_one_sitting_are_a_pair() -> None:
    a, b = rounds([*SLOWED, 20.0]), rounds([*gained(1.1), None])
    found = finals.duel({}, {}, a, [b[0], b[2], b[3], b[4]], resident=True)
    assert found.paired is not None and found.paired.pairs == 3
    again = finals.duel(
        {}, {}, rounds(SLOWED, (1, 1, 1, 1)), rounds(gained(1.1), (1, 1, 2, 2)), resident=True
    )
    assert again.paired is not None and again.paired.pairs == 2
    none = finals.duel({}, {}, rounds([10.0, None]), rounds([None, 12.0]), resident=True)
    assert none.paired is None


def test_each_shape_of_load_is_decided_by_the_same_rule() -> None:
    a = [replace(r, by_shape={"chat": r.value or 0}) for r in rounds(SLOWED)]
    b = [replace(r, by_shape={"chat": r.value or 0}) for r in rounds(gained(1.1))]
    (part,) = finals.duel({}, {}, a, b, resident=True).shapes
    assert part.decision == "better" and part.paired is not None and part.paired.pairs == 4
    (alone,) = finals.duel({}, {}, a, b).shapes
    assert alone.decision == "undecided" and alone.paired is None


@cache
def recorded() -> Study:
    """Of an H200, with real vLLM, before rounds were recorded: one round of four was a quarter slower."""
    return codec.loads(gzip.decompress(RECORDED.read_bytes()), Study)


def without(settings: Settings, *names: str) -> Mapping[str, str]:
    return {**settings, **{name: recorded().default[name] for name in names}}


@pytest.mark.parametrize(
    ("names", "low", "high"),
    [
        (("quantization", "max-num-batched-tokens"), 1.35, 1.82),
        (("quantization",), 1.47, 1.73),
        (("max-num-batched-tokens",), 0.92, 1.17),
    ],
)
def test_pairs_of_the_study_of_an_h200(names: Sequence[str], low: float, high: float) -> None:
    study = recorded()
    winner = study.finals[0].b
    all_runs = finals.with_rounds(study.final_runs)
    a, b = (
        [r for r in all_runs if r.settings == settings and r.value is not None]
        for settings in (without(winner, *names), winner)
    )
    found = finals.duel({}, {}, a, b, resident=True)
    assert found.paired is not None and found.paired.pairs == 3
    assert found.paired.interval == pytest.approx((low, high), abs=0.005)
    assert found.decided_by == "welch"


def test_the_rounds_of_an_older_study_follow_from_its_turns() -> None:
    found = finals.with_rounds(recorded().final_runs)
    assert not any(run.round for run in recorded().final_runs)
    assert [run.round for run in found] == [1] * 4 + [2] * 4 + [3] * 4 + [4] * 2
    assert finals.with_rounds(found) == found
    assert recorded().finals[0].paired is None and recorded().finals[0].decided_by == "welch"

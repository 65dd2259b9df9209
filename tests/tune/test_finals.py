"""Verdicts of two arms, and what each setting contributed."""

from collections.abc import Sequence

from model_optimizer.core.study import Duel, FinalRun
from model_optimizer.tune import finals


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

"""Verdicts of two arms, and what each setting contributed."""

from model_optimizer.tune import finals


def test_clear_differences_are_decided_and_noise_is_not() -> None:
    better = finals.duel({}, {}, [10, 10.1, 9.9], [12, 12.2, 11.9])
    worse = finals.duel({}, {}, [12, 12.2, 11.9], [10, 10.1, 9.9])
    noise = finals.duel({}, {}, [10, 11, 9], [10.4, 11.2, 9.3])
    assert (better.decision, worse.decision, noise.decision) == ("better", "worse", "undecided")
    assert noise.runs_needed is not None and noise.runs_needed > 3


def test_one_run_decides_nothing() -> None:
    assert finals.duel({}, {}, [10], [20]).decision == "undecided"


def test_no_goodput_at_all_decides_nothing() -> None:
    assert finals.duel({}, {}, [0, 0], [0, 0]).decision == "undecided"


def test_from_no_goodput_to_some_is_better() -> None:
    assert finals.duel({}, {}, [0, 0, 0], [5, 5.1, 4.9]).decision == "better"


def test_every_arm_runs_once_a_round() -> None:
    found = finals.order(3, 4, seed=1)
    assert all(sorted(found[i : i + 3]) == [0, 1, 2] for i in range(0, 12, 3))
    assert found != sorted(found)

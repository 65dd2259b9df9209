"""Quantiles against a printed table of Student's t, intervals against a worked example, coverage by drawing."""

import math
import random

import pytest

from model_optimizer.core import ratios, welch


@pytest.mark.parametrize(
    ("degrees", "expected"),
    [(1, 12.706), (2, 4.303), (3, 3.182), (5, 2.571), (10, 2.228), (30, 2.042), (1000, 1.962)],
)
def test_quantiles_are_those_of_the_printed_table(degrees: int, expected: float) -> None:
    assert welch.t_quantile(0.975, degrees) == pytest.approx(expected, abs=6e-4)


def test_equal_spreads_give_the_classic_interval() -> None:
    a, b = [math.exp(v) for v in (1.0, 2.0, 3.0)], [math.exp(v) for v in (2.0, 3.0, 4.0)]
    found = ratios.ratio(a, b)
    reach = 2.7764 * math.sqrt(2 / 3)
    assert found.value == pytest.approx(math.e)
    assert found.low == pytest.approx(math.exp(1 - reach), rel=1e-3)
    assert not found.decided


def test_intervals_hold_the_truth_as_often_as_they_say() -> None:
    draw = random.Random(7)
    held = 0
    for _ in range(400):
        a = [math.exp(draw.gauss(0, 0.05)) for _ in range(3)]
        b = [1.1 * math.exp(draw.gauss(0, 0.02)) for _ in range(4)]
        found = ratios.ratio(a, b)
        assert found.low is not None and found.high is not None
        held += found.low <= 1.1 <= found.high
    assert 0.91 <= held / 400 <= 0.99


def test_one_value_has_no_interval() -> None:
    found = ratios.ratio([1.0], [2.0, 2.0])
    assert (found.value, found.low, found.decided) == (2.0, None, False)


def test_values_that_do_not_vary_decide() -> None:
    assert ratios.ratio([1.0, 1.0], [1.5, 1.5]).decided


def test_nothing_or_zero_is_no_ratio() -> None:
    for a, b in (([], [1.0]), ([1.0], [0.0])):
        with pytest.raises(ValueError, match="above zero"):
            ratios.ratio(a, b)


def test_more_spread_needs_more_runs() -> None:
    calm = ratios.runs_needed([1.0, 1.01], [1.05, 1.06])
    wild = ratios.runs_needed([1.0, 1.2], [1.05, 1.25])
    assert calm is not None and wild is not None and calm < wild
    assert ratios.runs_needed([1.0], [1.0, 1.1]) is None


def test_pairs_give_students_interval_of_their_differences() -> None:
    """Differences of 1, 2 and 3: mean 2, standard error 1/sqrt(3), t of two degrees of freedom."""
    a, b = [math.exp(v) for v in (0.0, 5.0, -3.0)], [math.exp(v) for v in (1.0, 7.0, 0.0)]
    found = ratios.paired(a, b)
    reach = 4.3027 / math.sqrt(3)
    assert found.value == pytest.approx(math.exp(2))
    assert (math.log(found.low or 1), math.log(found.high or 1)) == pytest.approx(
        (2 - reach, 2 + reach), rel=1e-3
    )
    assert ratios.paired([1.0], [2.0]).low is None
    with pytest.raises(ValueError, match="pairs"):
        ratios.paired([1.0, 2.0], [1.0])


def test_intervals_of_pairs_hold_the_truth_as_often_as_they_say() -> None:
    draw = random.Random(3)
    held = 0
    for _ in range(2000):
        common = [draw.gauss(0, 1) for _ in range(5)]
        a = [math.exp(c + draw.gauss(0, 0.1)) for c in common]
        b = [math.exp(c + 0.2 + draw.gauss(0, 0.1)) for c in common]
        found = ratios.paired(a, b)
        held += found.low is not None and found.high is not None and found.low < math.exp(0.2) < found.high
    assert 0.93 < held / 2000 < 0.97


def test_how_many_pairs_would_decide() -> None:
    """(1.96 + 0.84)^2 times the variance over the square of the change."""
    a, b = [1.0, 1.0, 1.0], [math.exp(v) for v in (-0.1, 0.1, 0.3)]
    assert ratios.pairs_needed(a, b) == pytest.approx((1.96 + 0.8416) ** 2 * 0.04 / 0.01, abs=1)
    assert ratios.pairs_needed(a, a) is None

"""Percentiles that count failures, and their intervals."""

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model_optimizer.bench.percentiles import interpolated, interval_ranks, percentiles, quantile


def test_order_statistics_of_a_hundred() -> None:
    found = percentiles([float(i) for i in range(1, 101)])
    assert (found.p50, found.p90, found.p99, found.mean) == (50, 90, 99, 50.5)
    assert found.p50_ci == (40, 61)
    assert (found.p99_ci, found.because) == (None, None)  # too few for an upper end


def test_failures_rank_above_all_others() -> None:
    found = percentiles([float(i) for i in range(1, 96)], failed=5)
    assert (found.p50, found.p90, found.p99) == (50, 90, None)
    assert found.mean == 48
    assert found.because == "p99 falls on a failed request (5 of 100 failed)"


def test_when_most_fail_no_percentile_is_left() -> None:
    found = percentiles([1.0], failed=9)
    assert (found.p50, found.p90, found.p99, found.mean) == (None, None, None, 1)
    assert found.because == "p50, p90 and p99 fall on a failed request (9 of 10 failed)"
    assert percentiles([], failed=3).because == "all 3 requests failed"
    assert percentiles([]).because == "nothing to measure"


def test_an_interval_that_reaches_failures_is_left_out() -> None:
    assert percentiles([float(i) for i in range(60)], failed=40).p50_ci is None


@pytest.mark.parametrize(("total", "upper"), [(367, None), (368, 368)])
def test_the_99th_percentile_needs_368_values_for_an_upper_end(total: int, upper: int | None) -> None:
    assert interval_ranks(0.99, total)[1] == upper


def test_the_interval_holds_the_true_value_as_often_as_it_says() -> None:
    dice = random.Random(5)
    held = 0
    for _ in range(1000):
        found = percentiles([dice.random() for _ in range(101)])
        assert found.p50_ci is not None
        held += found.p50_ci[0] <= 0.5 <= found.p50_ci[1]
    assert 940 <= held <= 990  # at least 95 %, little more


def test_large_numbers_of_values() -> None:
    low, high = interval_ranks(0.5, 1_000_000)
    assert low is not None
    assert high is not None
    assert (low, high) == pytest.approx((499_020, 500_981), abs=2)


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=300), st.integers(0, 20))
def test_percentiles_ascend_and_are_values(values: list[float], failed: int) -> None:
    found = percentiles(values, failed)
    got = [value for value in (found.p50, found.p90, found.p99) if value is not None]
    assert got == sorted(got)
    assert set(got) <= set(values)
    for interval, middle in ((found.p50_ci, found.p50), (found.p99_ci, found.p99)):
        if interval is not None and middle is not None:
            assert interval[0] <= middle <= interval[1]


def test_interpolation_is_that_of_numpy() -> None:
    assert interpolated([4.0, 1.0, 3.0, 2.0], 0.5) == 2.5
    assert interpolated([1.0, 2.0, 3.0, 4.0, 5.0], 0.99) == pytest.approx(4.96)
    assert interpolated([], 0.5) is None
    assert quantile([], 0.5) is None


class TestSpread:
    def test_deviation_and_error_of_independent_values(self) -> None:
        dice = random.Random(3)
        found = percentiles([dice.gauss(100, 10) for _ in range(4000)])
        assert found.sd == pytest.approx(10, rel=0.05)
        assert found.mean_error == pytest.approx(10 / 100 / math.sqrt(4000), rel=0.7)

    def test_a_drift_within_the_run_counts(self) -> None:
        """Both hold the same values; in one of them the slow ones come last."""
        values = [100.0, 120.0] * 200
        assert percentiles(sorted(values)).mean_error > 20 * (percentiles(values).mean_error or 0)
        assert percentiles(sorted(values)).sd == percentiles(values).sd

    def test_too_few_say_nothing(self) -> None:
        assert percentiles([1.0] * 39).mean_error is None
        assert percentiles([1.0]).sd is None

"""Arrival processes are what they say: mean, variation, independence and clustering, with fixed seeds."""

import math
from itertools import islice, pairwise
from statistics import fmean, pvariance

import pytest

from model_optimizer.bench.arrivals import offsets_ns
from model_optimizer.core import UsageError

QPS = 50.0
COUNT = 20_000
# name, burstiness, coefficient of variation
PROCESSES = [
    ("constant", 1.0, 0.0),
    ("poisson", 1.0, 1.0),
    ("gamma", 0.25, 2.0),
    ("gamma", 1.0, 1.0),
    ("gamma", 4.0, 0.5),
]


def gaps(arrivals, burstiness, seed):
    offsets = [0, *islice(offsets_ns(arrivals, QPS, burstiness, seed), COUNT)]
    return [(b - a) / 1e9 for a, b in pairwise(offsets)]


def dispersion(gaps_s, window_s):
    """Variance over mean of the number of arrivals in windows: 1 for Poisson."""
    counts: dict[int, int] = {}
    time = 0.0
    for gap in gaps_s:
        time += gap
        counts[int(time / window_s)] = counts.get(int(time / window_s), 0) + 1
    numbers = [counts.get(i, 0) for i in range(int(time / window_s))]
    return pvariance(numbers) / fmean(numbers)


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize(("arrivals", "burstiness", "variation"), PROCESSES)
class TestProcess:
    def test_mean_gap(self, arrivals, burstiness, variation, seed):
        found = fmean(gaps(arrivals, burstiness, seed)) * QPS
        assert abs(found - 1) <= 4 * variation / math.sqrt(COUNT) + 1e-6

    def test_coefficient_of_variation(self, arrivals, burstiness, variation, seed):
        found = gaps(arrivals, burstiness, seed)
        assert math.sqrt(pvariance(found)) / fmean(found) == pytest.approx(variation, rel=0.08, abs=1e-6)

    def test_gaps_do_not_depend_on_the_one_before(self, arrivals, burstiness, variation, seed):
        found = gaps(arrivals, burstiness, seed)
        mean, variance = fmean(found), pvariance(found)
        if not variation:
            return
        correlation = fmean((a - mean) * (b - mean) for a, b in pairwise(found)) / variance
        assert abs(correlation) <= 4 / math.sqrt(COUNT)

    @pytest.mark.parametrize("window_s", [0.5, 2.0, 10.0])
    def test_clustering(self, arrivals, burstiness, variation, seed, window_s):
        """The index of dispersion of counts tends to the squared variation of gaps."""
        found = dispersion(gaps(arrivals, burstiness, seed), window_s)
        windows = COUNT / QPS / window_s
        noise = 5 * math.sqrt(2 / windows)
        short = 0.15 if window_s < 1 and arrivals == "gamma" else 0.0  # a short window has not got there
        assert found == pytest.approx(variation**2, rel=noise + short, abs=0.1)


def test_the_same_seed_gives_the_same_times_and_another_one_does_not():
    first, again, other = (list(islice(offsets_ns("poisson", 10, 1.0, seed), 20)) for seed in (7, 7, 8))
    assert first == again != other
    assert first == sorted(first)


def test_constant_arrivals_do_not_drift():
    assert list(islice(offsets_ns("constant", 3, 1.0, 0), 3000))[-1] == 1_000_000_000_000


def test_a_burst_is_at_once():
    assert list(islice(offsets_ns("burst", math.inf, 1.0, 0), 3)) == [0, 0, 0]


def test_a_closed_loop_has_no_schedule():
    with pytest.raises(UsageError):
        next(offsets_ns("closed", 1, 1.0, 0))

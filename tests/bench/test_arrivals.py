"""Arrival processes are what they say: mean, variation, independence and clustering, with fixed seeds."""

import math
from itertools import islice, pairwise
from statistics import fmean, pvariance

import pytest

from model_optimizer.bench.arrivals import Ramp, offsets_ns, part_of
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


def gaps(arrivals, burstiness, seed, processes=1):
    """Of the whole load, put together from the parts that each process makes."""
    plans = [offsets_ns(arrivals, QPS, burstiness, seed) for _ in range(processes)]
    parts = [part_of(plan, own, processes) for own, plan in enumerate(plans)]
    times = sorted(time for part in parts for _, time in islice(part, COUNT // processes))
    return [(b - a) / 1e9 for a, b in pairwise([0, *times])]


def dispersion(gaps_s, window_s):
    """Variance over mean of the number of arrivals in windows: 1 for Poisson."""
    counts: dict[int, int] = {}
    time = 0.0
    for gap in gaps_s:
        time += gap
        counts[int(time / window_s)] = counts.get(int(time / window_s), 0) + 1
    numbers = [counts.get(i, 0) for i in range(int(time / window_s))]
    return pvariance(numbers) / fmean(numbers)


@pytest.mark.parametrize("processes", [1, 2, 4])
@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize(("arrivals", "burstiness", "variation"), PROCESSES)
class TestProcess:
    def test_gaps(self, arrivals, burstiness, variation, seed, processes):
        """Their mean, their coefficient of variation, and that none depends on the one before."""
        found = gaps(arrivals, burstiness, seed, processes)
        mean, variance = fmean(found), pvariance(found)
        assert abs(mean * QPS - 1) <= 4 * variation / math.sqrt(COUNT) + 1e-6
        assert math.sqrt(variance) / mean == pytest.approx(variation, rel=0.08, abs=1e-6)
        if variation:
            correlation = fmean((a - mean) * (b - mean) for a, b in pairwise(found)) / variance
            assert abs(correlation) <= 4 / math.sqrt(COUNT)

    def test_clustering(self, arrivals, burstiness, variation, seed, processes):
        """The index of dispersion of counts tends to the squared variation of gaps."""
        found = gaps(arrivals, burstiness, seed, processes)
        for window_s in (0.5, 2.0, 10.0):
            windows = COUNT / QPS / window_s
            noise = 5 * math.sqrt(2 / windows)
            short = 0.15 if window_s < 1 and arrivals == "gamma" else 0.0  # a short window has not got there
            assert dispersion(found, window_s) == pytest.approx(variation**2, rel=noise + short, abs=0.1)


def test_independent_processes_would_not_do():
    """What the plan is for: four constant processes of a quarter of the rate are not one of the whole."""
    times = sorted(
        time + n * 1_700_000
        for n in range(4)
        for time in islice(offsets_ns("constant", QPS / 4, 1.0, n), COUNT // 4)
    )
    found = [(b - a) / 1e9 for a, b in pairwise(times)]
    assert math.sqrt(pvariance(found)) / fmean(found) > 0.5


@pytest.mark.parametrize(("first", "last"), [(10.0, 100.0), (100.0, 10.0), (50.0, 50.0)])
@pytest.mark.parametrize("arrivals", ["constant", "poisson", "gamma"])
class TestRamp:
    SECONDS = 200.0

    def units(self, arrivals, first, last):
        """Arrival times, in arrivals that were expected by then: the process of rate 1 that was bent."""
        ramp = Ramp(to_qps=last, seconds=self.SECONDS)
        slope = (last - first) / self.SECONDS
        offsets = islice(offsets_ns(arrivals, first, 0.5, 1, ramp), 14_000)
        times = [t for n in offsets if (t := n / 1e9) <= self.SECONDS]
        return times, [first * t + slope * t * t / 2 for t in times]

    def test_the_rate_follows_the_line(self, arrivals, first, last):
        times, _ = self.units(arrivals, first, last)
        for part in range(4):
            begin, end = part * self.SECONDS / 4, (part + 1) * self.SECONDS / 4
            slope = (last - first) / self.SECONDS
            expected = first * (end - begin) + slope * (end**2 - begin**2) / 2
            assert sum(begin < t <= end for t in times) == pytest.approx(
                expected, abs=6 * math.sqrt(expected)
            )

    def test_the_process_keeps_its_shape(self, arrivals, first, last):
        _, units = self.units(arrivals, first, last)
        found = [b - a for a, b in pairwise(units)]
        variation = {"constant": 0.0, "poisson": 1.0, "gamma": math.sqrt(2)}[arrivals]
        assert fmean(found) == pytest.approx(1, abs=0.08)
        assert math.sqrt(pvariance(found)) == pytest.approx(variation, rel=0.1, abs=1e-5)


def test_after_the_ramp_the_rate_stays():
    ramp = Ramp(to_qps=20.0, seconds=2.0)
    times = [n / 1e9 for n in islice(offsets_ns("constant", 10.0, 1.0, 0, ramp), 130)]
    assert [b - a for a, b in pairwise(times)][-1] == pytest.approx(1 / 20)
    assert sum(t <= 2.0 for t in times) == 30


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

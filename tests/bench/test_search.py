"""Which levels a search tries, and how sure it is of what it found."""

import asyncio
import random

import pytest

from model_optimizer.bench import search
from model_optimizer.bench.intervals import half_width, wilson
from model_optimizer.bench.latency import meets
from model_optimizer.bench.level import Level
from model_optimizer.bench.search import Probe, Quest, find_max, pareto, requests_needed, worth_more
from model_optimizer.core import LoadPoint, Percentiles, Slo

from . import virtual


def look(quest: Quest, truth: float, requests: int = 400, seed: int = 0, **more):
    """A server that meets the limits for nearly all requests up to `truth`, and for few above."""
    dice, asked = random.Random(seed), []

    async def probe(level: float) -> Probe:
        asked.append(level)
        chance = 0.999 if level <= truth else 0.3
        return Probe(met=sum(dice.random() < chance for _ in range(requests)), total=requests, **more)

    return asyncio.run(find_max(quest, probe)), asked


@pytest.mark.parametrize("truth", [1, 2, 3, 7, 8, 9, 100, 255])
@pytest.mark.parametrize("first", [1, 8, 64])
def test_users(truth: int, first: int) -> None:
    found, asked = look(Quest(share=0.95, first=first, whole=True), truth)
    assert found.best is not None and found.above is not None
    assert found.best <= truth < found.above <= max(found.best + 1, found.best * 1.051)
    assert found.resolved
    assert all(level == int(level) for level in asked)


def test_the_most_under_a_limit() -> None:
    """Four at a time are worked on: a fifth waits a whole turn, and so misses a limit that holds for four.
    Nobody waits for that: the clock is virtual."""

    async def probe(users: float) -> Probe:
        level = Level(title="test", arrivals="closed", concurrency=int(users), requests=60)
        driven = await asyncio.to_thread(
            virtual.drive, level, tokens=2, delays_s=lambda _: (0.100, 0.001), slots=4
        )
        met = [meets(o, Slo(ttft_ms=190), scheduled=False) for o in driven.outcomes]
        return Probe(met=sum(met), total=len(met))

    found = asyncio.run(find_max(Quest(share=0.9, first=1, whole=True), probe))
    assert (found.best, found.above, found.axis) == (4, 5, "concurrency")
    assert {trial.level for trial in found.trials} >= {1, 2, 4, 5, 8}


@pytest.mark.parametrize("truth", [0.3, 5.0, 77.7])
def test_rates(truth: float) -> None:
    found, asked = look(Quest(share=0.95, first=4.0, whole=False), truth)
    assert found.best is not None and found.above is not None
    assert found.best <= truth < found.above <= found.best * 1.051
    assert found.resolved
    assert len(asked) < 20


def test_nothing_meets_the_limits() -> None:
    found, asked = look(Quest(share=0.95, first=8, whole=True), 0)
    assert (found.best, found.above, found.resolved) == (None, 1, True)
    assert asked == [8, 4, 2, 1]


def test_everything_meets_them() -> None:
    found, asked = look(Quest(share=0.95, first=1, whole=True, limit=20), 1000)
    assert (found.best, found.above, found.resolved) == (20, None, False)
    assert "its own limit" in found.because
    assert asked == [1, 2, 4, 8, 16, 20]


def test_too_few_requests_are_said_to_be() -> None:
    found, _ = look(Quest(share=0.99, first=1, whole=True, limit=64), 10, requests=20)
    assert not found.resolved
    assert "chance cannot be excluded" in found.because


def test_a_level_that_chance_leaves_open_is_run_again() -> None:
    async def probe(level: float) -> Probe:
        asked.append(level)
        return Probe(met=95 if level == 1 else 10, total=100)

    asked: list[float] = []
    found = asyncio.run(find_max(Quest(share=0.95, first=1, whole=True), probe))
    assert asked.count(1) == 3
    assert found.trials[0].total == 300
    assert not found.resolved


def test_a_growing_queue_misses_even_when_all_met_the_limits() -> None:
    found, _ = look(Quest(share=0.95, first=1, whole=True), 1000, kept_up=False)
    assert (found.best, found.resolved) == (None, True)


def test_an_interruption_keeps_what_is_known() -> None:
    async def probe(level: float) -> Probe:
        return Probe(met=100, total=100, interrupted=level == 4)

    found = asyncio.run(find_max(Quest(share=0.95, first=1, whole=True), probe))
    assert (found.best, found.resolved, found.because) == (4, False, "it was interrupted")


@pytest.mark.parametrize("share", [0.5, 0.9, 0.95, 0.99, 0.999])
def test_enough_requests_are_asked_for(share: float) -> None:
    count = requests_needed(share, 1, is_open=False)
    assert wilson(count, count)[0] >= share


def point(name: str, rate: float, latency: float, **more) -> LoadPoint:
    ok = {"completed": 10, "failed": 0, "window_s": 1.0} | more
    return LoadPoint(target=name, output_tokens_per_s=rate, e2e_ms=Percentiles(p50=latency), **ok)


def test_pareto() -> None:
    points = [point("a", 100, 10), point("b", 200, 20), point("c", 190, 25), point("d", 200, 20.5)]
    assert pareto(points) == ("a", "b")


def test_a_sweep_ends_when_doubling_gains_nothing() -> None:
    assert worth_more([point("a", 100, 10)])
    assert worth_more([point("a", 100, 10), point("b", 150, 10)])
    assert not worth_more([point("a", 100, 10), point("b", 101, 20)])
    assert not worth_more([point("a", 100, 10, failed=11)])
    assert not worth_more([point("a", 100, 10, start="scheduled", steady=False)])
    assert search.throughput(point("a", 5, 1)) == 5


def test_intervals() -> None:
    assert wilson(0, 0) == (0.0, 1.0)
    assert wilson(50, 100) == pytest.approx((0.4038, 0.5962), abs=1e-4)  # as tabled for n = 100
    assert half_width([10, 10, 10]) == 0
    assert half_width([9, 10, 11]) == pytest.approx(4.303 / 3**0.5 / 10)
    assert half_width([1]) is None

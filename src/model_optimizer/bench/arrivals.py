"""When requests arrive in an open loop: gaps in seconds, offsets in nanoseconds.

Gaps are drawn, added and rounded once; nothing is rescaled afterwards, so that a Poisson process has the
Poisson process's variance. A load that several processes share is one plan: each process draws all of it
and takes every n-th arrival, for the sum of independent constant or gamma processes is not such a process.
"""

import math
import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice

from model_optimizer.core import UsageError
from model_optimizer.core.workload import Arrivals


@dataclass(frozen=True, slots=True, kw_only=True)
class Ramp:
    """The rate goes to `to_qps` in a straight line, within `seconds`, and stays there."""

    to_qps: float
    seconds: float

    def time_s(self, expected: float, qps: float) -> float:
        """When so many arrivals are expected by, at a rate that starts at `qps`: the inverse of the
        integral of the rate, which turns a process of rate 1 into one that keeps its shape."""
        by_end = (qps + self.to_qps) / 2 * self.seconds
        if expected >= by_end:
            return self.seconds + (expected - by_end) / self.to_qps
        slope = (self.to_qps - qps) / self.seconds
        return 2 * expected / (qps + math.sqrt(max(0.0, qps * qps + 2 * slope * expected)))


def gaps_s(arrivals: Arrivals, qps: float, burstiness: float, dice: random.Random) -> Iterator[float]:
    """Endless gaps between arrivals, of mean 1/qps.

    The coefficient of variation is 0 for constant, 1 for Poisson and 1/sqrt(burstiness) for gamma.
    """
    match arrivals:
        case "constant":
            while True:
                yield 1 / qps
        case "poisson":
            while True:
                yield dice.expovariate(qps)
        case "gamma":
            while True:
                yield dice.gammavariate(burstiness, 1 / (qps * burstiness))
        case "burst":
            while True:
                yield 0.0
        case "closed" | "trace":
            raise UsageError(f"arrivals `{arrivals}` are not drawn")


def offsets_ns(
    arrivals: Arrivals, qps: float, burstiness: float, seed: int, ramp: Ramp | None = None
) -> Iterator[int]:
    """Endless arrival times after the start. The same seed gives the same times."""
    dice = random.Random(f"arrivals/{seed}")
    total = 0.0
    for gap in gaps_s(arrivals, qps if ramp is None else 1.0, burstiness, dice):
        total += gap
        yield round((total if ramp is None else ramp.time_s(total, qps)) * 1e9)


def part_of(plan: Iterable[int], process: int, processes: int) -> Iterator[tuple[int, int]]:
    """Number and time of the arrivals that one of several processes makes."""
    return islice(enumerate(plan), process, None, processes)

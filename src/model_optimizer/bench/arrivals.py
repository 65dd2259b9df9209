"""When requests arrive in an open loop: gaps in seconds, offsets in nanoseconds.

Gaps are drawn, added and rounded once; nothing is rescaled afterwards, so that a Poisson process has the
Poisson process's variance.
"""

import random
from collections.abc import Iterator

from model_optimizer.core import UsageError
from model_optimizer.core.workload import Arrivals


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
        case "closed":
            raise UsageError("a closed loop has no arrival times")


def offsets_ns(arrivals: Arrivals, qps: float, burstiness: float, seed: int) -> Iterator[int]:
    """Endless arrival times after the start. The same seed gives the same times."""
    dice = random.Random(f"arrivals/{seed}")
    total = 0.0
    for gap in gaps_s(arrivals, qps, burstiness, dice):
        total += gap
        yield round(total * 1e9)

"""Comparing two small sets of measurements: is b larger than a, and how many runs would tell?"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, variance

from . import welch

LEAST_CHANGE = 0.01
"""Differences below this (in logarithm) are not worth more runs."""

_MOST_RUNS = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratio:
    """b over a with its interval. `low` and `high` are None when one side has fewer than two values."""

    value: float
    low: float | None = None
    high: float | None = None

    @property
    def decided(self) -> bool:
        """The interval does not hold 1."""
        return self.low is not None and self.high is not None and (self.low > 1 or self.high < 1)


def ratio(a: Sequence[float], b: Sequence[float], confidence: float = 0.95) -> Ratio:
    """Of geometric means, by Welch's t on logarithms: the spreads of a and b may differ.

    All values must be above zero, else ValueError.
    """
    if not a or not b or min(*a, *b) <= 0:
        raise ValueError("a ratio needs values above zero on both sides")
    if len(a) < 2 or len(b) < 2:
        return Ratio(value=math.exp(fmean(map(math.log, b)) - fmean(map(math.log, a))))
    found = welch.ratio(welch.of_runs(a), welch.of_runs(b), confidence)
    return Ratio(value=found.value, low=found.interval[0], high=found.interval[1])


def paired(a: Sequence[float], b: Sequence[float], confidence: float = 0.95) -> Ratio:
    """Of geometric means, by Student's t on the differences of logarithms: a[i] and b[i] belong together.

    All values must be above zero and as many on both sides, else ValueError.
    """
    if not a or len(a) != len(b) or min(*a, *b) <= 0:
        raise ValueError("pairs need a value above zero on both sides")
    each = _differences(a, b)
    middle = fmean(each)
    if len(each) < 2:
        return Ratio(value=math.exp(middle))
    reach = welch.t_quantile(0.5 + confidence / 2, len(each) - 1) * math.sqrt(variance(each) / len(each))
    return Ratio(value=math.exp(middle), low=math.exp(middle - reach), high=math.exp(middle + reach))


def pairs_needed(a: Sequence[float], b: Sequence[float], confidence: float = 0.95) -> int | None:
    """Pairs that would decide at the spread and ratio seen; None when it cannot be told."""
    if len(a) < 2 or len(a) != len(b) or min(*a, *b) <= 0:
        return None
    each = _differences(a, b)
    if (spread := variance(each)) <= 0:
        return None
    known = welch.Sample(log=0.0, variance=0.0, freedom=math.inf, each=0.0, count=0)
    seen = welch.Sample(log=0.0, variance=0.0, freedom=len(each) - 1, each=spread, count=len(each))
    found = welch.needed(known, seen, math.expm1(max(abs(fmean(each)), LEAST_CHANGE)), confidence)
    return found if found is not None and found <= _MOST_RUNS else None


def _differences(a: Sequence[float], b: Sequence[float]) -> list[float]:
    return [math.log(two) - math.log(one) for one, two in zip(a, b, strict=True)]


def runs_needed(a: Sequence[float], b: Sequence[float], confidence: float = 0.95) -> int | None:
    """Runs of each side that would decide at the spread and ratio seen; None when it cannot be told."""
    if len(a) < 2 or len(b) < 2 or min(*a, *b) <= 0:
        return None
    one, two = welch.of_runs(a), welch.of_runs(b)
    change = math.expm1(max(abs(two.log - one.log), LEAST_CHANGE))
    found = welch.needed(one, two, change, confidence)
    return found if found is not None and found <= _MOST_RUNS else None

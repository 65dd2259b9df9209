"""Comparing two small sets of measurements: Welch's interval on the ratio of their geometric means."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from statistics import fmean, variance

_STEPS = 2_000
"""Of Simpson's rule under the density; the quantile is good to five digits from 1 degree of freedom on."""

_MOST_RUNS = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratio:
    """b over a with its interval. `low` and `high` are None when one side has fewer than two values."""

    value: float
    low: float | None = None
    high: float | None = None
    degrees: float | None = None

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
    x, y = [math.log(v) for v in a], [math.log(v) for v in b]
    middle = fmean(y) - fmean(x)
    if len(x) < 2 or len(y) < 2:
        return Ratio(value=math.exp(middle))
    parts = variance(x) / len(x), variance(y) / len(y)
    spread = math.sqrt(sum(parts))
    if spread == 0:
        return Ratio(value=math.exp(middle), low=math.exp(middle), high=math.exp(middle))
    degrees = sum(parts) ** 2 / (parts[0] ** 2 / (len(x) - 1) + parts[1] ** 2 / (len(y) - 1))
    reach = student_quantile((1 + confidence) / 2, degrees) * spread
    return Ratio(
        value=math.exp(middle), low=math.exp(middle - reach), high=math.exp(middle + reach), degrees=degrees
    )


def runs_needed(
    a: Sequence[float], b: Sequence[float], confidence: float = 0.95, least: float = 0.01
) -> int | None:
    """How many runs of each side would decide at the spread and the ratio seen; differences under
    `least` (in logarithm) count as `least`. None when it cannot be told.
    """
    if len(a) < 2 or len(b) < 2 or min(*a, *b) <= 0:
        return None
    x, y = [math.log(v) for v in a], [math.log(v) for v in b]
    gap = max(abs(fmean(y) - fmean(x)), least)
    spread = variance(x) + variance(y)
    for runs in range(2, _MOST_RUNS):
        if student_quantile((1 + confidence) / 2, 2 * runs - 2) * math.sqrt(spread / runs) < gap:
            return runs
    return None


@cache
def student_quantile(share: float, degrees: float) -> float:
    """The value that Student's t stays under with probability `share` (0.5 to 1), by bisection."""
    if not 0.5 <= share < 1 or degrees <= 0:
        raise ValueError("the share is from 0.5 to below 1, and degrees of freedom are above zero")
    low, high = 0.0, 1.0
    while _student_share(high, degrees) < share:
        low, high = high, 2 * high
    while high - low > 1e-7 * high:
        middle = (low + high) / 2
        if _student_share(middle, degrees) < share:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def _student_share(t: float, degrees: float) -> float:
    """P(T < t) for t >= 0. With t = sqrt(n) tan(u) the density is a power of a cosine, finite in range."""
    top = math.atan(t / math.sqrt(degrees))
    scale = math.exp(math.lgamma((degrees + 1) / 2) - math.lgamma(degrees / 2)) / math.sqrt(math.pi)
    width = top / _STEPS
    total = sum((4 if i % 2 else 2) * math.cos(i * width) ** (degrees - 1) for i in range(1, _STEPS))
    ends = 1.0 + math.cos(top) ** (degrees - 1)
    return 0.5 + scale * (total + ends) * width / 3

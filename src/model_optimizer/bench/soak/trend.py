"""A slope that outliers do not move, and an interval for windows that depend on their neighbours."""

import math
from collections.abc import Sequence
from statistics import fmean, median

_Z = 1.96
_MOST = 600


def slope(times: Sequence[float], values: Sequence[float]) -> tuple[float, tuple[float, float]]:
    """Theil and Sen's slope (value per unit of time) and its 95 % interval after Sen.

    The variance of Kendall's statistic is widened by the lag-1 correlation of what is left when the slope
    is taken out. At least three values are needed; beyond 600 they are averaged in groups.
    """
    times, values = _grouped(times), _grouped(values)
    count = len(values)
    pairs = sorted(
        (values[j] - values[i]) / (times[j] - times[i])
        for i in range(count)
        for j in range(i + 1, count)
        if times[j] > times[i]
    )
    middle = median(pairs)
    variance = count * (count - 1) * (2 * count + 5) / 18 * _dependence(times, values, middle)
    reach = _Z * math.sqrt(variance)
    low = max(0, math.floor((len(pairs) - reach) / 2))
    high = min(len(pairs) - 1, math.ceil((len(pairs) + reach) / 2))
    return middle, (pairs[low], pairs[high])


def _dependence(times: Sequence[float], values: Sequence[float], middle: float) -> float:
    """How many times larger the variance is than that of independent values."""
    left = [v - middle * t for t, v in zip(times, values, strict=True)]
    mean = fmean(left)
    total = math.fsum((v - mean) ** 2 for v in left)
    if total <= 0 or len(left) < 8:
        return 1.0
    lag = math.fsum((left[i] - mean) * (left[i - 1] - mean) for i in range(1, len(left))) / total
    lag = min(0.9, max(0.0, lag))
    return (1 + lag) / (1 - lag)


def _grouped(values: Sequence[float]) -> list[float]:
    size = -(-len(values) // _MOST)
    return [fmean(values[i : i + size]) for i in range(0, len(values), size)]

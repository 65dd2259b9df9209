"""Percentiles that count failures, with intervals that assume no shape of the distribution."""

import math
from collections.abc import Sequence
from functools import lru_cache
from statistics import fmean, stdev

from model_optimizer.core import Percentiles

_TAIL = 0.025
_STRETCHES = 10
_LEAST_IN_STRETCH = 4


def percentiles(values: Sequence[float], failed: int = 0, *, independent: bool = True) -> Percentiles:
    """Of completed requests in milliseconds, with `failed` requests ranked above all of them.

    A percentile is the smallest value that at least that share of all requests stays at or below. The
    interval (95 %) is between two order statistics and so needs independent values: it is left out for
    gaps within requests, and where its upper end would lie above the largest value. Values are in the order
    in which their requests began, from which the error of the mean is found.
    """
    total = len(values) + failed
    if not values:
        return Percentiles(because=f"all {failed} requests failed" if failed else "nothing to measure")
    ordered = sorted(values)
    lost = [f"p{q}" for q in (50, 90, 99) if _rank(q / 100, total) > len(ordered)]
    return Percentiles(
        p50=_at(ordered, _rank(0.5, total)),
        p90=_at(ordered, _rank(0.9, total)),
        p99=_at(ordered, _rank(0.99, total)),
        mean=math.fsum(ordered) / len(ordered),
        p50_ci=_interval(ordered, 0.5, total) if independent else None,
        p99_ci=_interval(ordered, 0.99, total) if independent else None,
        sd=stdev(ordered) if len(ordered) > 1 else None,
        mean_error=_mean_error(values) if independent else None,
        because=f"{_list(lost)} on a failed request ({failed} of {total} failed)" if lost else None,
    )


def _mean_error(values: Sequence[float]) -> float | None:
    """The standard error of the mean as a share of it, by means of stretches of equal length."""
    size = len(values) // _STRETCHES
    mean = math.fsum(values) / len(values)
    if size < _LEAST_IN_STRETCH or mean <= 0:
        return None
    means = [fmean(values[i * size : (i + 1) * size]) for i in range(_STRETCHES)]
    return stdev(means) / math.sqrt(_STRETCHES) / mean


def quantile(values: Sequence[float], q: float) -> float | None:
    """The order statistic at share `q` of finished values; None without any."""
    return _at(sorted(values), _rank(q, len(values))) if values else None


def interpolated(values: Sequence[float], q: float) -> float | None:
    """The linear interpolation that numpy.percentile gives by default; None without any value."""
    if not values:
        return None
    ordered = sorted(values)
    place = q * (len(ordered) - 1)
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)


def _list(names: list[str]) -> str:
    return f"{names[0]} falls" if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]} fall"


def _rank(q: float, total: int) -> int:
    return max(1, math.ceil(q * total - 1e-9))


def _at(ordered: Sequence[float], rank: int) -> float | None:
    return ordered[rank - 1] if rank <= len(ordered) else None


def _interval(ordered: Sequence[float], q: float, total: int) -> tuple[float, float] | None:
    low, high = interval_ranks(q, total)
    if low is None or high is None or high > len(ordered):
        return None
    return ordered[low - 1], ordered[high - 1]


@lru_cache(maxsize=256)
def interval_ranks(q: float, total: int) -> tuple[int | None, int | None]:
    """Ranks (from 1) whose order statistics enclose the q-quantile with at least 95 % probability.

    The number of values below the quantile is binomial(total, q): at most 2.5 % may lie on either side.
    None where no rank is far enough out (the 99th percentile needs 368 values for an upper end).
    """
    spread = math.sqrt(total * q * (1 - q))
    first = max(0, math.floor(total * q - 12 * spread - 20))
    last = min(total, math.ceil(total * q + 12 * spread + 20))
    low: int | None = None
    below = 0.0  # P(count < rank)
    for count in range(first, last + 1):
        below += _binomial(count, total, q)
        rank = count + 1
        if below <= _TAIL:
            low = rank
        if below >= 1 - _TAIL:
            return low if low and low >= 1 else None, rank if rank <= total else None
    return low, None


def _binomial(count: int, total: int, q: float) -> float:
    log = math.lgamma(total + 1) - math.lgamma(count + 1) - math.lgamma(total - count + 1)
    return math.exp(log + count * math.log(q) + (total - count) * math.log1p(-q))

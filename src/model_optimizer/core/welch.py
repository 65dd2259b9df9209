"""Welch's interval for the ratio of two means, on logarithms: are two sets of measurements apart?"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist, fmean, variance


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """The mean of a logarithm, the variance of that mean, and the degrees of freedom behind it (infinite
    where the variance is taken as known). `each` is the variance of one observation, `count` their number."""

    log: float
    variance: float
    freedom: float
    each: float
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratio:
    """B over A, and its interval."""

    value: float
    interval: tuple[float, float]


def of_runs(values: Sequence[float]) -> Sample:
    """Two runs or more, each with one value above zero."""
    logs = [math.log(v) for v in values]
    each = variance(logs)
    return Sample(
        log=fmean(logs), variance=each / len(logs), freedom=len(logs) - 1, each=each, count=len(logs)
    )


def ratio(a: Sample, b: Sample, confidence: float) -> Ratio:
    """The interval at a two-sided confidence, degrees of freedom after Welch and Satterthwaite."""
    spread = a.variance + b.variance
    difference = b.log - a.log
    if spread <= 0:
        return Ratio(value=math.exp(difference), interval=(math.exp(difference), math.exp(difference)))
    below = sum(s.variance**2 / s.freedom for s in (a, b) if math.isfinite(s.freedom))
    freedom = spread**2 / below if below > 0 else math.inf
    reach = t_quantile(0.5 + confidence / 2, freedom) * math.sqrt(spread)
    return Ratio(
        value=math.exp(difference), interval=(math.exp(difference - reach), math.exp(difference + reach))
    )


def needed(a: Sample, b: Sample, change: float, confidence: float, power: float = 0.8) -> int | None:
    """Observations on each side that would tell a change of `change` (0.05 is 5 %) from none; None when
    one observation's variance is not known."""
    each = a.each + b.each
    if each <= 0 or change <= 0:
        return None
    normal = NormalDist()
    z = normal.inv_cdf(0.5 + confidence / 2) + normal.inv_cdf(power)
    return max(2, math.ceil(z**2 * each / math.log1p(change) ** 2))


def t_quantile(p: float, freedom: float) -> float:
    """Student's t: the value below which a share `p` (above one half) lies."""
    if not math.isfinite(freedom) or freedom > 1e6:
        return NormalDist().inv_cdf(p)
    low, high = 0.0, 1.0
    while _t_below(high, freedom) < p and high < 1e12:
        low, high = high, 2 * high
    for _ in range(200):
        middle = (low + high) / 2
        if _t_below(middle, freedom) < p:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def _t_below(t: float, freedom: float) -> float:
    return 1 - 0.5 * _beta(freedom / (freedom + t * t), freedom / 2, 0.5)


def _beta(x: float, a: float, b: float) -> float:
    """The regularized incomplete beta function, by its continued fraction (Lentz)."""
    if x <= 0 or x >= 1:
        return min(1.0, max(0.0, x))
    front = math.exp(
        a * math.log(x) + b * math.log1p(-x) + math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)
    )
    if x > (a + 1) / (a + b + 2):
        return 1 - front * _fraction(1 - x, b, a) / b
    return front * _fraction(x, a, b) / a


def _fraction(x: float, a: float, b: float) -> float:
    tiny = 1e-300
    c, d = 1.0, 1 - (a + b) * x / (a + 1)
    d = 1 / (d if abs(d) > tiny else tiny)
    result = d
    for m in range(1, 400):
        for numerator in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1 + numerator * d
            d = 1 / (d if abs(d) > tiny else tiny)
            c = 1 + numerator / c
            c = c if abs(c) > tiny else tiny
            result *= c * d
        if abs(c * d - 1) < 1e-14:
            break
    return result

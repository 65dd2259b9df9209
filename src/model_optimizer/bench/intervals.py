"""Intervals of shares and means (95 %)."""

import math
from collections.abc import Sequence
from statistics import fmean, stdev

_Z = 1.959964
# Student's t for a two-sided interval of 95 %, by degrees of freedom from 1.
_T = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145,
      2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048,
      2.045, 2.042)  # fmt: skip


def wilson(met: int, total: int) -> tuple[float, float]:
    """Wilson's score interval of a share; (0, 1) without any trial."""
    if total <= 0:
        return 0.0, 1.0
    share, z2 = met / total, _Z * _Z
    middle = (share + z2 / (2 * total)) / (1 + z2 / total)
    half = _Z / (1 + z2 / total) * math.sqrt(share * (1 - share) / total + z2 / (4 * total * total))
    return max(0.0, middle - half), min(1.0, middle + half)


def students_t(freedom: int) -> float:
    return _T[freedom - 1] if freedom <= len(_T) else _Z + 2.5 / freedom


def half_width(values: Sequence[float]) -> float | None:
    """Half the interval of the mean as a share of the mean; None below two values, or at a mean of 0."""
    if len(values) < 2 or not (mean := fmean(values)):
        return None
    return students_t(len(values) - 1) * stdev(values) / math.sqrt(len(values)) / abs(mean)

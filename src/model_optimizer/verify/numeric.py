"""How far numbers are apart, in units that know the type they were computed in."""

import math
from collections.abc import Sequence

# Explicit bits of the fraction, and the exponent of the smallest normal number.
_FLOATS = {"float32": (23, -126), "float16": (10, -14), "bfloat16": (7, -126)}


def ulp(value: float, dtype: str) -> float:
    """The distance from `value` to the next number of a float type."""
    bits, smallest = _FLOATS[dtype]
    exponent = math.frexp(value)[1] - 1 if value else smallest
    return math.ldexp(1.0, max(exponent, smallest) - bits)


def drift(got: Sequence[float], wanted: Sequence[float], dtype: str) -> tuple[float, float]:
    """The largest difference of a row: as a share of its largest value, and in units in the last place.

    The unit is that of the largest wanted value: small values beside a large one are sums of large terms,
    and carry the error of those.
    """
    scale = max(map(abs, wanted), default=0.0)
    largest = max((abs(a - b) for a, b in zip(got, wanted, strict=True)), default=0.0)
    return (largest / scale if scale else 0.0, largest / ulp(scale, dtype))

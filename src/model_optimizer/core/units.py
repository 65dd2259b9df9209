"""Bytes and times, from what people write and to what people read."""

import re
from collections.abc import Mapping

from .errors import UsageError

_BYTES = {
    "": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12,
    "kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40,
    "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40,
}  # fmt: skip
_SECONDS = {"": 1, "ms": 1e-3, "s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400}


def parse_bytes(text: str) -> int:
    """`8GiB`, `8 GB`, `512m` or a plain number of bytes, 10^18 at most."""
    return round(_parse(text, _BYTES, "a size in bytes", "8GiB, 8GB or 512MiB", 1e18))


def parse_seconds(text: str) -> float:
    """`30s`, `10m`, `72h`, `250ms` or a plain number of seconds, 10^9 (31 years) at most."""
    return _parse(text, _SECONDS, "a time", "30s, 10m or 72h", 1e9)


def _parse(text: str, units: Mapping[str, float], what: str, example: str, most: float) -> float:
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-z]*)\s*", text.lower())
    if not found or found[2] not in units:
        raise UsageError(f"`{text}` is not {what}", hint=(f"write for example {example}",))
    value = float(found[1]) * units[found[2]]
    if value > most:
        shown = text if len(text) <= 40 else f"{text[:40]}..."
        raise UsageError(f"`{shown}` is too much for {what}", hint=(f"write for example {example}",))
    return value


def show_bytes(count: int | None) -> str:
    """Three significant digits in binary units; `unknown` for None."""
    if count is None:
        return "unknown"
    value, unit = float(count), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if abs(value) < 1000:
            break
        value, unit = value / 1024, larger
    return f"{value:.0f} {unit}" if unit == "B" or value >= 100 else f"{value:.3g} {unit}"


def show_ratio(value: float) -> str:
    """Two significant digits, which is more than one run on a busy machine is worth: 0.42x, 2.0x, 12x."""
    if value >= 10:
        return f"{value:.0f}x"
    return f"{value:.1f}x" if value >= 1 else f"{value:.2g}x"


def show_count(value: float) -> str:
    """`0.386`, `13.7`, `2,560`: three digits, and no powers of ten below a million million."""
    return f"{value:,.0f}" if 1000 <= value < 1e12 else f"{value:.3g}"


def show_ms(value: float | None) -> str:
    """`0.84 ms`, `12.3 ms`, `1.20 s`; `-` for None."""
    if value is None:
        return "-"
    if value >= 1000:
        return f"{value / 1000:.2f} s"
    return f"{value:.0f} ms" if value >= 100 else f"{value:.3g} ms"

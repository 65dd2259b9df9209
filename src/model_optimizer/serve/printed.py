"""What an engine says of its KV cache while it starts, beside what was predicted."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

QUANTITIES = {"kv_cache_tokens": "tokens", "max_concurrency": "requests"}
"""What is compared, and its unit."""


MOST_BYTES = 64 << 20
"""Of a log that is looked through: all that a start writes, and no more of one that never ends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """One number of a start. `predicted` is None where nobody could say."""

    quantity: str
    printed: float
    predicted: float | None = None

    @property
    def error(self) -> float | None:
        """The share by which the prediction was too high."""
        if self.predicted is None or not self.printed:
            return None
        return self.predicted / self.printed - 1


def numbers(log: Path, patterns: Mapping[str, str], *, from_byte: int = 0) -> Mapping[str, float]:
    """What the log says, by quantity; of a line that is repeated the last. Empty when it cannot be read."""
    try:
        with log.open("rb") as stream:
            stream.seek(from_byte)
            text = stream.read(MOST_BYTES).decode("utf-8", errors="replace")
    except (OSError, ValueError):
        return {}
    found = {name: [*re.finditer(pattern, text)] for name, pattern in patterns.items()}
    return {name: _product(every[-1]) for name, every in found.items() if every}


def _product(found: re.Match[str]) -> float:
    """Of the numbers that a line names: slots times tokens of a slot."""
    return math.prod(float(number.replace(",", "")) for number in found.groups() if number)


def compare(printed: Mapping[str, float], predicted: Mapping[str, float]) -> tuple[Compared, ...]:
    """In the order of QUANTITIES; what was not printed is left out."""
    return tuple(
        Compared(quantity=name, printed=printed[name], predicted=predicted.get(name))
        for name in QUANTITIES
        if name in printed
    )

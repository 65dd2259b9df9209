"""Distributions of token counts, as written on the command line.

512                     every request has 512
uniform:100,900         both ends included
normal:512,64           mean and standard deviation
lognormal:300,4000      median and 99th percentile
choice:10,10,2000       one of these; a number that is named twice is twice as likely
file:lengths.txt        one whole number a line, drawn with replacement
"""

import math
import random
from dataclasses import dataclass
from pathlib import Path
from statistics import NormalDist
from typing import Literal

from .errors import UsageError

Z99 = NormalDist().inv_cdf(0.99)
ARITY = {"uniform": 2, "normal": 2, "lognormal": 2}
SYNTAX = "write N, uniform:A,B, normal:MEAN,SD, lognormal:MEDIAN,P99, choice:A,B,C or file:PATH"
LONGEST = 10**9
"""Tokens: no model reads so many."""

SHOWN = 8
"""So many lengths or fewer are named one by one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lengths:
    """`numbers` holds what follows the colon; for `empirical` it holds all observed lengths."""

    kind: Literal["fixed", "uniform", "normal", "lognormal", "empirical"]
    numbers: tuple[float, ...]

    @classmethod
    def fixed(cls, tokens: int) -> "Lengths":
        return cls(kind="fixed", numbers=(tokens,))

    @property
    def mean(self) -> float:
        first, last = self.numbers[0], self.numbers[-1]
        match self.kind:
            case "uniform":
                return (first + last) / 2
            case "lognormal":
                return first * math.exp(_sigma(first, last) ** 2 / 2)
            case "empirical":
                return sum(self.numbers) / len(self.numbers)
            case _:
                return first

    def draw(self, dice: random.Random) -> int:
        """One length, at least 1."""
        first, last = self.numbers[0], self.numbers[-1]
        match self.kind:
            case "fixed":
                value = first
            case "uniform":
                value = dice.randint(int(first), int(last))
            case "normal":
                value = dice.gauss(first, last)
            case "lognormal":
                value = dice.lognormvariate(math.log(first), _sigma(first, last))
            case "empirical":
                value = dice.choice(self.numbers)
        return max(1, round(value))

    def quantile(self, q: float) -> int:
        """The length that a share `q` (0 to 1, ends excluded) of requests stays at or below."""
        first, last = self.numbers[0], self.numbers[-1]
        match self.kind:
            case "fixed":
                value = first
            case "uniform":
                value = first + q * (last - first)
            case "normal":
                value = NormalDist(first, last).inv_cdf(q) if last else first
            case "lognormal":
                value = first * math.exp(_sigma(first, last) * NormalDist().inv_cdf(q))
            case "empirical":
                ordered = sorted(self.numbers)
                value = ordered[min(len(ordered) - 1, math.ceil(q * len(ordered)) - 1)]
        return max(1, math.ceil(value))

    def __str__(self) -> str:
        if self.kind == "fixed":
            return f"{self.numbers[0]:g}"
        if self.kind == "empirical" and len(self.numbers) <= SHOWN:
            return f"choice:{','.join(f'{n:g}' for n in self.numbers)}"
        if self.kind == "empirical":
            return f"{len(self.numbers)} recorded lengths, mean {self.mean:.0f}"
        return f"{self.kind}:{','.join(f'{n:g}' for n in self.numbers)}"


def _sigma(median: float, p99: float) -> float:
    return math.log(p99 / median) / Z99


def parse(text: str) -> Lengths:
    """Read the command line's notation. UsageError says what is wrong and shows the notation."""
    kind, colon, rest = text.partition(":")
    if not colon:
        return Lengths(kind="fixed", numbers=(_positive_whole(text),))
    if kind == "file":
        return Lengths(kind="empirical", numbers=_from_file(Path(rest)))
    if kind == "choice":
        return Lengths(kind="empirical", numbers=tuple(float(_positive_whole(t)) for t in rest.split(",")))
    if kind not in ARITY:
        raise UsageError(f"`{text}` is not a length distribution", hint=(SYNTAX,))
    try:
        first, last = (float(part) for part in rest.split(","))
    except ValueError:
        raise UsageError(f"`{text}` needs two numbers", hint=(SYNTAX,)) from None
    _check_order(text, kind, first, last)
    found = Lengths(kind=kind, numbers=(first, last))  # pyright: ignore[reportArgumentType]
    if found.mean > LONGEST:
        raise _too_long(text)
    return found


def _check_order(text: str, kind: str, first: float, last: float) -> None:
    if not (math.isfinite(first) and math.isfinite(last)) or first < 1 or last < 0:
        raise UsageError(f"`{text}`: lengths are at least 1 token", hint=(SYNTAX,))
    if max(first, last) > LONGEST:
        raise _too_long(text)
    if kind != "normal" and last < first:
        raise UsageError(f"`{text}`: the second number is below the first", hint=(SYNTAX,))


def _positive_whole(text: str) -> int:
    try:
        value = int(text)
    except ValueError:
        raise UsageError(f"`{text}` is not a number of tokens", hint=(SYNTAX,)) from None
    if value < 1:
        raise UsageError(f"`{text}`: lengths are at least 1 token", hint=(SYNTAX,))
    if value > LONGEST:
        raise _too_long(text)
    return value


def _too_long(text: str) -> UsageError:
    shown = text if len(text) <= 40 else f"{text[:40]}..."
    return UsageError(f"`{shown}`: lengths are at most {LONGEST:,} tokens", hint=(SYNTAX,))


def _from_file(path: Path) -> tuple[float, ...]:
    try:
        lines = path.read_text().split()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"`{path}` cannot be read", cause=(str(error),)) from error
    if not lines:
        raise UsageError(f"`{path}` holds no lengths", hint=("write one whole number a line",))
    return tuple(float(_positive_whole(line)) for line in lines)

"""Is it right? One layer of verification of one artefact or service."""

from dataclasses import dataclass
from typing import Literal

Layer = Literal["format", "operators", "model", "quality", "service"]
Outcome = Literal["pass", "fail", "undecided"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """One metric: what was got, what was wanted, where, on how many samples.

    `interval` is the 95 % interval of `got`. `wanted` reads as a limit: `>= 0.98`.
    """

    metric: str
    got: float | None
    wanted: str
    outcome: Outcome
    where: str | None = None
    samples: int | None = None
    interval: tuple[float, float] | None = None
    because: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The outcome is the worst of its comparisons; `more_samples` is how many would decide it."""

    layer: Layer
    subject: str
    reference: str | None = None
    outcome: Outcome
    comparisons: tuple[Comparison, ...] = ()
    because: str | None = None
    more_samples: int | None = None


def worst(outcomes: "tuple[Outcome, ...]") -> Outcome:
    """Fail beats undecided beats pass; no comparison at all is undecided, never a pass."""
    if not outcomes:
        return "undecided"
    order: tuple[Outcome, ...] = ("fail", "undecided", "pass")
    return min(outcomes, key=order.index)

"""From numbers to comparisons, and from comparisons to a verdict."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from model_optimizer.core import Comparison
from model_optimizer.core.verdict import Outcome, worst

from .intervals import Decision, Interval, decide_proportion, percentile, proportion
from .limits import ULPS
from .outputs import Outputs

REPORTED = "reported"
"""`wanted` of a comparison that informs and decides nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """One comparison and, where it is undecided, how many more texts would decide it."""

    comparison: Comparison
    more_texts: int | None = 0


def gated(
    metric: str, found: Interval, gate: float, decision: Decision, *, where: str, samples: int
) -> Judged:
    """A number that the candidate must reach."""
    return Judged(
        comparison=Comparison(
            metric=metric,
            got=found.estimate,
            wanted=f">= {gate:g}",
            outcome=decision.outcome,
            where=where,
            samples=samples,
            interval=found.ends,
        ),
        more_texts=decision.more_texts,
    )


def gated_share(
    metric: str,
    counts: Sequence[tuple[float, float]],
    gate: float,
    *,
    where: str,
    cannot_change: str | None = None,
) -> Judged:
    """A proportion that must be reached; `counts` holds (successes, trials) of each text.

    `cannot_change` says why no trial could have failed. A perfect score then needs no sample size: no
    number of further texts would show what arithmetic rules out.
    """
    found = gated(
        metric,
        proportion(counts),
        gate,
        decide_proportion(counts, gate),
        where=where,
        samples=round(sum(trials for _, trials in counts)),
    )
    if cannot_change and found.comparison.outcome == "undecided" and found.comparison.got == 1:
        passed = dataclasses.replace(found.comparison, outcome="pass", because=cannot_change)
        return Judged(comparison=passed)
    return found


def reported(
    metric: str, found: Interval | float, *, samples: int, where: str, wanted: str = REPORTED
) -> Judged:
    """A number to read; it decides nothing."""
    interval = found if isinstance(found, Interval) else None
    return Judged(
        comparison=Comparison(
            metric=metric,
            got=interval.estimate if interval else float(found),  # pyright: ignore[reportArgumentType]
            wanted=wanted,
            outcome="pass",
            where=where,
            samples=samples,
            interval=interval.ends if interval else None,
        )
    )


def wrong(metric: str, got: float, wanted: str, *, where: str, samples: int, because: str) -> Judged:
    """A fault that no number of further samples could excuse."""
    return Judged(
        comparison=Comparison(
            metric=metric,
            got=got,
            wanted=wanted,
            outcome="fail",
            where=where,
            samples=samples,
            because=because,
        )
    )


def token_ids(candidates: Sequence[Outputs]) -> tuple[Judged, ...]:
    """Whether the candidate's own tokenizer cuts texts as the reference's does; () when it has none."""
    checks = [c.token_check for c in candidates if c.token_check]
    if not checks:
        return ()
    checked = sum(c.checked for c in checks)
    different = sum(c.different for c in checks)
    if not different:
        found = reported(
            "token_ids",
            1.0,
            samples=checked,
            where="its own tokenizer cuts every text as the reference's does",
            wanted="= 1",
        )
        return (found,)
    before = 0
    for check in checks:
        if check.first is not None:
            before += check.first
            break
        before += check.checked
    return (
        wrong(
            "token_ids",
            1 - different / checked,
            "= 1",
            where=f"text {before + 1} is the first of {different} that it cuts differently",
            samples=checked,
            because="the candidate's tokenizer is not the reference's",
        ),
    )


def drifted(
    metric: Literal["logits_ulp", "vectors_ulp", "scores_ulp"],
    drifts: Sequence[tuple[float, float]],
    candidate: Outputs,
) -> Judged:
    """The numeric difference, (share, units in the last place) a row, in 99 % of rows.

    It decides for a candidate that is not quantized; a quantized one is meant to differ.
    """
    dtype = candidate.dtype
    got = percentile([ulps for _, ulps in drifts], 0.99)
    share = percentile([share for share, _ in drifts], 0.99)
    where = f"99 % of rows are within {share:.2g} of their largest value; one unit is of {dtype}"
    if candidate.quantized:
        return reported(metric, got, samples=len(drifts), where=f"{where}; quantized, so it decides nothing")
    limit = ULPS[dtype]
    outcome: Outcome = "pass" if got <= limit else "fail"
    return Judged(
        comparison=Comparison(
            metric=metric,
            got=got,
            wanted=f"<= {limit:g}",
            outcome=outcome,
            where=where,
            samples=len(drifts),
            because=None if outcome == "pass" else f"more than rounding in {dtype} explains",
        )
    )


def outcome(found: Sequence[Judged]) -> Outcome:
    return worst(tuple(j.comparison.outcome for j in found))


def more_texts(found: Sequence[Judged]) -> int | None:
    """How many more texts would decide everything that is undecided; None when no number is known to."""
    open_ = [j.more_texts for j in found if j.comparison.outcome == "undecided"]
    known = [more for more in open_ if more is not None]
    return max(known) if open_ and len(known) == len(open_) else None

"""What a rule of the linter says: nothing wrong, a fault, a remark, or that it cannot know."""

from collections.abc import Sequence

from model_optimizer.core import Comparison

from .judged import REPORTED

SHOWN = 3
"""Faults that are named one by one; the others are counted."""


def checked(
    rule: str, faults: Sequence[str], *, of: int, what: str, reference: str, hint: str | None = None
) -> Comparison:
    """A rule that holds for `of` things (`what`, plural), or its faults. `reference` is where it is from."""
    if not faults:
        return Comparison(
            metric=rule,
            got=0,
            wanted="= 0",
            outcome="pass",
            where=f"{of:,} {what}",
            samples=of,
            because=reference,
        )
    more = f", and {len(faults) - SHOWN:,} more" if len(faults) > SHOWN else ""
    because = f"{hint}; {reference}" if hint else reference
    return Comparison(
        metric=rule,
        got=len(faults),
        wanted="= 0",
        outcome="fail",
        where="; ".join(faults[:SHOWN]) + more,
        samples=of,
        because=because,
    )


def remark(rule: str, says: str, *, reference: str, got: float | None = None) -> Comparison:
    """Worth knowing; it decides nothing."""
    return Comparison(metric=rule, got=got, wanted=REPORTED, outcome="pass", where=says, because=reference)


def refused(rule: str, says: str, *, reference: str) -> Comparison:
    """One thing that cannot work."""
    return Comparison(metric=rule, got=1, wanted="= 0", outcome="fail", where=says, because=reference)


def unknown(rule: str, says: str, *, reference: str) -> Comparison:
    """Nothing that this version reads would tell."""
    return Comparison(metric=rule, got=None, wanted="= 0", outcome="undecided", where=says, because=reference)

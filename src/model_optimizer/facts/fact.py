"""What every row has in common: where its figures come from, and how far they can be trusted."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """`source` names what was read, and is never empty: a row without one does not load.

    `checked` is False when the whole row was recalled or assumed; `unchecked` names single fields
    for which that holds in a row that is otherwise checked; `derived` names fields that were computed
    from others. `confidence` says how good the sources are.
    """

    source: tuple[str, ...]
    checked: bool = True
    unchecked: tuple[str, ...] = ()
    derived: tuple[str, ...] = ()
    confidence: Literal["high", "medium", "low"] = "high"
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.source or not all(self.source):
            raise ValueError("a row without a source")

    def is_checked(self, field: str) -> bool:
        """False when the field, or the whole row, was never found in a source."""
        return self.checked and field not in self.unchecked

    def mark(self, field: str) -> str:
        """`unchecked`, `derived` or an empty string: what a screen shows beside the field."""
        if not self.is_checked(field):
            return "unchecked"
        return "derived" if field in self.derived else ""

"""The answer of one check."""

from dataclasses import dataclass
from typing import Literal

Status = Literal["ok", "warn", "fail", "unknown", "skipped"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """`evidence` says what was read. `hint` holds one step a line.

    `check`, `layer` and `source` (of the rule) are filled in by the one who runs the check, and
    `waits_for` too, when the check was skipped because another one failed.
    """

    status: Status
    message: str
    evidence: str | None = None
    hint: str | None = None
    check: str = ""
    layer: str = ""
    source: tuple[str, ...] = ()
    waits_for: str | None = None

"""The answer of one check."""

from dataclasses import dataclass
from typing import Literal

Status = Literal["ok", "warn", "fail", "unknown", "skipped"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """`check` is filled in by the one who runs the check; `evidence` says what was read."""

    status: Status
    message: str
    evidence: str | None = None
    hint: str | None = None
    check: str = ""

"""What a log says went wrong: at most one cause, how sure, and what shows it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Confidence = Literal["high", "medium", "low"]
Kind = Literal["root", "wrapper", "benign", "contributing", "client"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """One line of the log. `line` counts from 1; a long text is cut around what was recognised."""

    line: int
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Recognized:
    """A known failure that was found in a log.

    `count` is how many lines show it and `evidence` holds the first of them. `values` are the figures that
    the lines name. `because` says why it has this place: how sure, what it explains, what counts against it.
    """

    id: str
    kind: Kind
    layer: str
    cause: str
    fix: tuple[str, ...] = ()
    confidence: Confidence | None = None
    evidence: tuple[Evidence, ...] = ()
    probe: str | None = None
    because: tuple[str, ...] = ()
    values: Mapping[str, str] = field(default_factory=dict[str, str])
    count: int = 1
    source: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Silence:
    """A program that says nothing. Seconds are None when they could not be read, `alive` when nobody asked.

    `cpu_percent` is of all its processes together: 100 is one busy core. `stack` are the innermost frames.
    """

    last_line: str | None = None
    silent_s: float | None = None
    limit_s: float = 600.0
    running_s: float | None = None
    alive: bool | None = None
    state: str | None = None
    cpu_percent: float | None = None
    gpu_percent: float | None = None
    stack: tuple[str, ...] = ()
    verdict: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A command that was run to be diagnosed. `exit_code` is negative for a signal."""

    argv: tuple[str, ...]
    exit_code: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """`primary` is None when the evidence is thin; `needed` then says what to send.

    `others` are causes that could not be told from the primary one, `consequences` those that it explains,
    `wrappers` lines that only say that something failed, `unexplained` errors that nobody wrote down yet.
    """

    primary: Recognized | None = None
    contributing: tuple[Recognized, ...] = ()
    benign: tuple[Recognized, ...] = ()
    others: tuple[Recognized, ...] = ()
    consequences: tuple[Recognized, ...] = ()
    wrappers: tuple[Recognized, ...] = ()
    unexplained: tuple[Evidence, ...] = ()
    needed: tuple[str, ...] = ()
    lines: int = 0
    bytes: int = 0
    notes: tuple[str, ...] = ()
    silence: Silence | None = None
    command: Command | None = None

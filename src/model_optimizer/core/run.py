"""One run of a pipeline: the command, where each step stands, and who won."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

State = Literal["waiting", "running", "done", "failed", "skipped"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """`seconds` is how long it took; `because` says why it failed or was skipped."""

    state: State = "waiting"
    seconds: float | None = None
    because: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Narrowed:
    """What was asked of a run beside model, load and limits; it goes on with the same. `texts` is a path,
    `seconds` how long each level of load is held."""

    engines: tuple[str, ...] = ()
    schemes: tuple[str, ...] = ()
    budget_bytes: int | None = None
    texts: str | None = None
    seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """The content of run.json. `steps` maps `plan`, `make onnxruntime-int8`, ... to their state."""

    command: tuple[str, ...]
    version: str
    created: str
    model: str
    steps: Mapping[str, Step] = field(default_factory=dict[str, Step])
    winner: str | None = None
    because: str | None = None
    narrowed: Narrowed = field(default_factory=Narrowed)

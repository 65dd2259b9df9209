"""What a user may choose about a quantization, and how a tool that takes choices is handed them."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from model_optimizer.core import Artifact, ModelSpec, Needs, Progress, RunWorker, Scheme
from model_optimizer.core.protocols import Tool

from ._calibration import Calibration

SEARCH_STEPS = 20
"""Points at which AWQ tries a strength of its scales: llm-compressor's own default."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choices:
    """`symmetric` None leaves it to the worker: zero points, but none for experts. `exclude` are names of
    layers that keep their precision, or patterns with `*`. `bits` is the budget of `mixed`, bits a weight on
    average."""

    calibration: Calibration = field(default_factory=Calibration)
    symmetric: bool | None = None
    exclude: tuple[str, ...] = ()
    search_steps: int = SEARCH_STEPS
    bits: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Configured:
    """A tool with the choices that it takes; to everybody else a tool like any other."""

    tool: Any
    choices: Choices

    def __getattr__(self, name: str) -> Any:
        return getattr(self.tool, name)

    def needs(self, model: ModelSpec, scheme: Scheme) -> Needs:
        return self.tool.needs(model, scheme, choices=self.choices)

    def make(
        self, source: Artifact, scheme: Scheme, out: Path, *, run: RunWorker, progress: Progress
    ) -> Artifact:
        return self.tool.make(source, scheme, out, run=run, progress=progress, choices=self.choices)


def configured(tool: Tool, choices: Choices) -> Tool:
    """The tool with these choices; one that takes none stays as it is."""
    if not getattr(tool, "TAKES_CHOICES", False):
        return tool
    return Configured(tool=tool, choices=choices)  # pyright: ignore[reportReturnType]

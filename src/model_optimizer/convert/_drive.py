"""What the steps of a graph have in common: one worker job that writes a folder, and bytes by arithmetic."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from model_optimizer.core import Artifact, ModelSpec, Needs, Progress, RunWorker, Scheme
from model_optimizer.system.making import WorkerJob, bytes_beside_weights, made_by_worker

ENVIRONMENT = "onnx"


def in_32_bits(model: ModelSpec) -> int:
    """Bytes of all weights as a worker holds them."""
    return 4 * model.parameters


def with_tokenizer(weights: Callable[[ModelSpec, Scheme], int]) -> Callable[[ModelSpec, Scheme], int]:
    """Bytes of a folder: its weights, and what lies beside them."""
    return lambda model, scheme: weights(model, scheme) + bytes_beside_weights(model)


@dataclass(frozen=True, slots=True, kw_only=True)
class Drive:
    """How one step is driven.

    `artifact` is the bytes of the folder it writes, `spare` what lies beside it for a while; `copies` is how
    many times it holds the bytes of `held` in memory, beside `imports_bytes`.
    """

    tool: str
    writes: Mapping[str, str]
    request: Callable[[Artifact, Scheme], Mapping[str, Any]]
    artifact: Callable[[ModelSpec, Scheme], int]
    imports_bytes: int
    copies: float
    held: Callable[[ModelSpec], int] = in_32_bits
    spare: Callable[[ModelSpec], int] = lambda _model: 0
    worker: str | None = None

    def needs(self, model: ModelSpec, scheme: Scheme) -> Needs:
        artifact = self.artifact(model, scheme)
        return Needs(
            disk_bytes=artifact + self.spare(model),
            memory_bytes=self.imports_bytes + round(self.copies * self.held(model)),
            artifact_bytes=artifact,
        )

    def make(
        self, source: Artifact, scheme: Scheme, out: Path, *, run: RunWorker, progress: Progress
    ) -> Artifact:
        """Export, and compare with the original at several sizes. Raises ToolError."""
        return self._made(source, scheme, out, {}, run, progress)

    def make_compared(
        self,
        source: Artifact,
        scheme: Scheme,
        out: Path,
        *,
        run: RunWorker,
        progress: Progress,
        texts: tuple[str, ...] = (),
    ) -> Artifact:
        """Change the graph, and compare it on texts with the one before. Raises ToolError."""
        return self._made(source, scheme, out, {"texts": list(texts)}, run, progress)

    def make_calibrated(
        self,
        source: Artifact,
        scheme: Scheme,
        out: Path,
        *,
        run: RunWorker,
        progress: Progress,
        texts: tuple[str, ...] = (),
        images: Path | None = None,
    ) -> Artifact:
        """The same, with texts or images to calibrate on too. Raises ToolError when too little is left."""
        given = {
            "texts": list(texts),
            "images": str(images) if images else None,
            "calibration_count": len(texts) or None,
        }
        return self._made(source, scheme, out, given, run, progress)

    def _made(
        self,
        source: Artifact,
        scheme: Scheme,
        out: Path,
        given: Mapping[str, Any],
        run: RunWorker,
        progress: Progress,
    ) -> Artifact:
        job = WorkerJob(
            tool=self.tool,
            environment=ENVIRONMENT,
            worker=self.worker or self.tool,
            request={**given, **self.request(source, scheme)},
            scheme=scheme.name,
            format=self.writes[scheme.name],
        )
        return made_by_worker(job, source, out, run=run, progress=progress)

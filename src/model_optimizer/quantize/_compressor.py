"""What the tools that drive llm-compressor and ModelOpt have in common: arithmetic, and one worker job.

Each tool is a file of its own and says which schemes it makes; its `needs` and `make` are those of its Drive.
"""

import shutil
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from model_optimizer.core import (
    Artifact,
    ModelSpec,
    MoptError,
    Needs,
    Progress,
    RunWorker,
    Scheme,
    digest,
)
from model_optimizer.system.making import WorkerJob, made_by_worker

from ._calibration import sample_bytes
from ._choices import Choices
from ._hessian import statistics
from ._size import BYTES, artifact_bytes, largest_matrix, quantized_parameters

FLOATS = frozenset({"fp32", "bf16", "fp16"})
"""Schemes that the original may be stored in."""

FREE_IMPORTS_BYTES = 480_000_000
"""llm-compressor without `datasets`, and pieces of what is copied: 448 MB seen with 0.14 and tiny-qwen3."""

FREE_COPIES = 64
"""Bytes held for each parameter of the largest matrix: itself, 32-bit copies, the result. Seen: 486 (fp8) to
518 MB (mxfp4) in all for a largest matrix of 0.9 million (SmolLM2)."""

IMPORTS_BYTES = {"modelopt": 740_000_000}
"""By environment, else OTHER_IMPORTS_BYTES. ModelOpt with gradients: 0.71 GB seen in all with tiny-qwen3."""

OTHER_IMPORTS_BYTES = 650_000_000
"""llm-compressor and transformers in full: 0.62 GB seen with 5 million parameters."""

COPIES = 2.2
"""The model, and the compressed one that is written. Seen: 1.1 GB in all for 269 MB."""

EXPERTS_APART = 1.0
"""Experts are loaded in stacks and then taken apart: for a while they are there twice."""

WORK = "resume"
DEFAULT = Choices()


@dataclass(frozen=True, slots=True, kw_only=True)
class Drive:
    """How one tool is driven: its worker, and what it is asked for each scheme. `hessian` is for GPTQ, whose
    statistics of a layer's inputs need tokens for each of its columns."""

    tool: str
    environment: str
    worker: str
    request: Callable[[Scheme, Choices], Mapping[str, Any]]
    format: str
    calibrated: bool = True
    hessian: bool = False

    def needs(self, model: ModelSpec, scheme: Scheme, choices: Choices = DEFAULT) -> Needs:
        """Bytes of the folder and of RAM, by arithmetic: with calibration the model and its data, else little
        more than the largest matrix."""
        return _needs(self, model, scheme, choices)

    def make(
        self,
        source: Artifact,
        scheme: Scheme,
        out: Path,
        *,
        run: RunWorker,
        progress: Progress,
        choices: Choices = DEFAULT,
    ) -> Artifact:
        """One worker job that writes `out`. Raises ToolError."""
        return _make(self, source, scheme, out, choices, run=run, progress=progress)


def _needs(drive: Drive, model: ModelSpec, scheme: Scheme, choices: Choices) -> Needs:
    artifact = artifact_bytes(model, scheme, choices)
    if not drive.calibrated:
        return Needs(
            disk_bytes=artifact,
            memory_bytes=FREE_IMPORTS_BYTES + FREE_COPIES * largest_matrix(model),
            artifact_bytes=artifact,
        )
    stored = model.checkpoint_bytes or BYTES.get(model.dtype or "bf16", 2) * model.parameters
    data = choices.calibration.count * sample_bytes(model, choices.calibration.length)
    hessians = 4 * max(model.hidden_size, model.intermediate_size) ** 2 * 3
    copies = COPIES + (EXPERTS_APART if model.experts else 0)
    imports = IMPORTS_BYTES.get(drive.environment, OTHER_IMPORTS_BYTES)
    return Needs(
        disk_bytes=artifact + stored,  # finished layers lie beside until the end
        memory_bytes=imports + round(copies * stored) + data + hessians,
        artifact_bytes=artifact,
    )


def vram_bytes(model: ModelSpec, choices: Choices) -> int:
    """GPU memory that calibration takes: one layer and its statistics, one sample; the rest waits in RAM."""
    layer = 2 * quantized_parameters(model) // max(1, model.layers)
    hessians = 4 * max(model.hidden_size, model.intermediate_size) ** 2 * 3
    tables = 2 * (model.embedding_parameters + model.head_parameters)
    return tables + 3 * layer + hessians + 8 * sample_bytes(model, choices.calibration.length)


def _make(
    drive: Drive,
    source: Artifact,
    scheme: Scheme,
    out: Path,
    choices: Choices,
    *,
    run: RunWorker,
    progress: Progress,
) -> Artifact:
    """One worker job. What an earlier one that was killed left half is used or removed."""
    asked: dict[str, Any] = {
        "task": source.task,
        "exclude": list(choices.exclude),
        **drive.request(scheme, choices),
    }
    if drive.calibrated:
        asked["calibration"] = choices.calibration.request()
    if drive.hessian:
        asked["statistics"] = statistics()
    work = out.with_name(f".{out.name}.{WORK}-{_key(drive, source, scheme, asked)}")
    asked["work"] = str(work)
    _remove_other_work(out, work)
    job = WorkerJob(
        tool=drive.tool,
        environment=drive.environment,
        worker=drive.worker,
        request=asked,
        scheme=scheme.name,
        format=drive.format,
    )
    try:
        made = made_by_worker(job, source, out, run=run, progress=progress)
    except MoptError as error:
        # A killed worker may go on later; what was refused will be refused again.
        if error.reference != "worker-crashed":
            shutil.rmtree(work, ignore_errors=True)
        with suppress(OSError):
            work.rmdir()  # nothing was finished in it
        raise
    shutil.rmtree(work, ignore_errors=True)
    return made


def _key(drive: Drive, source: Artifact, scheme: Scheme, asked: Mapping[str, Any]) -> str:
    """Names unfinished work by all that it depends on, so that nothing else goes on with it."""
    return digest.of_noun([drive.tool, source.digest, scheme.name, asked])[7:19]


def _remove_other_work(out: Path, work: Path) -> None:
    for place in out.parent.glob(f".{out.name}.{WORK}-*"):
        if place != work:
            shutil.rmtree(place, ignore_errors=True)

"""Engines of TensorRT for RTX, built on any machine for GeForce and RTX cards of compute capability 7.5 to
12.1.
"""

from pathlib import Path

from model_optimizer.core import Artifact, Progress, RunWorker, Scheme

from . import _engine
from ._engine import Choices, needs

__all__ = ["ENVIRONMENT", "FROM", "READS", "TARGET", "TASKS", "WRITES", "make", "needs"]

TARGET = "tensorrt_rtx"
READS = "onnx_typed"
FROM: frozenset[str] = frozenset()
WRITES = dict.fromkeys(("fp32", "fp16", "bf16", "int8", "fp8", "int4_rtn"), "tensorrt_rtx_engine")
TASKS = frozenset({"embed", "rerank", "vision", "generate"})
ENVIRONMENT = "tensorrt_rtx"


def make(
    source: Artifact,
    scheme: Scheme,
    out: Path,
    *,
    run: RunWorker,
    progress: Progress,
    choices: Choices | None = None,
) -> Artifact:
    """One engine for all asked GPUs, with the proof of what it computes in. Raises UsageError, ToolError."""
    return _engine.build(
        "engine_tensorrt_rtx", ENVIRONMENT, "rtx", source, scheme, out,
        run=run, progress=progress, choices=choices or Choices(),
    )  # fmt: skip

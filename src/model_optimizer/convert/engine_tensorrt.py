"""Engines of TensorRT 10 and 11, built on the GPU that will run them, through the Python interface."""

from pathlib import Path

from model_optimizer.core import Artifact, Progress, RunWorker, Scheme

from . import _engine
from ._engine import Choices, needs

__all__ = ["ENVIRONMENT", "FROM", "READS", "TARGET", "TASKS", "WRITES", "make", "needs"]

TARGET = "tensorrt"
READS = "onnx_typed"
FROM: frozenset[str] = frozenset()
WRITES = dict.fromkeys(("fp32", "fp16", "bf16", "int8", "fp8", "int4_rtn"), "tensorrt_engine")
TASKS = frozenset({"embed", "rerank", "vision", "generate"})
ENVIRONMENT = "tensorrt"


def make(
    source: Artifact,
    scheme: Scheme,
    out: Path,
    *,
    run: RunWorker,
    progress: Progress,
    choices: Choices | None = None,
) -> Artifact:
    """One engine for the GPU of this machine, with the proof of what it computes in. Raises UsageError,
    ToolError.
    """
    return _engine.build(
        "engine_tensorrt", ENVIRONMENT, "tensorrt", source, scheme, out,
        run=run, progress=progress, choices=choices or Choices(),
    )  # fmt: skip

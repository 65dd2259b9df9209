"""Models of images from PyTorch to ONNX in 32 bits: classifiers, and segmenters of free image size."""

from pathlib import Path

from model_optimizer.core import Artifact, ModelSpec, Needs, Progress, RunWorker, Scheme
from model_optimizer.system.making import WorkerJob, made_by_worker

READS = "safetensors"
FROM = frozenset({"fp32", "fp16", "bf16"})
WRITES = {"fp32": "onnx"}
TASKS = frozenset({"vision"})
ENVIRONMENT = "onnx"

OPSET = 20
"""As for embedding models; TensorRT 10.0 and later read it."""
GRAPH_BYTES = 1_000_000
IMPORTS_BYTES = 600_000_000
COPIES_IN_MEMORY = 2.5


def needs(model: ModelSpec, scheme: Scheme) -> Needs:
    weights = 4 * model.parameters
    return Needs(
        disk_bytes=weights + GRAPH_BYTES,
        memory_bytes=IMPORTS_BYTES + round(COPIES_IN_MEMORY * weights),
        artifact_bytes=weights + GRAPH_BYTES,
    )


def make(source: Artifact, scheme: Scheme, out: Path, *, run: RunWorker, progress: Progress) -> Artifact:
    """Export, and compare with the original at several image sizes. Raises ToolError."""
    job = WorkerJob(
        tool="onnx_vision",
        environment=ENVIRONMENT,
        worker="onnx_vision",
        request={"opset": OPSET},
        scheme=scheme.name,
        format=WRITES[scheme.name],
    )
    return made_by_worker(job, source, out, run=run, progress=progress)

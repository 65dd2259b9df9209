"""Embedding models and cross-encoders from PyTorch to ONNX in 32 bits, pooling and normalisation included."""

from pathlib import Path

from model_optimizer.core import Artifact, ModelSpec, Needs, Progress, RunWorker, Scheme
from model_optimizer.system.making import WorkerJob, bytes_beside_weights, made_by_worker

READS = "safetensors"
FROM = frozenset({"fp32", "fp16", "bf16"})
WRITES = {"fp32": "onnx"}
TASKS = frozenset({"embed", "rerank"})
ENVIRONMENT = "onnx"

# With a later opset the exporter fuses rotary embeddings with tables for a batch of one, or keeps
# attention as one operator that runs in 16 bits only (PyTorch 2.13).
OPSET = 20

# Seen with PyTorch 2.13: 0.68 GB for 91 MB of weights in 32 bits, 2.1 GB for 874 MB.
IMPORTS_BYTES = 500_000_000
COPIES_IN_MEMORY = 2.3


def needs(model: ModelSpec, scheme: Scheme) -> Needs:
    """The head of a language model is left out; all else is written once in 32 bits."""
    weights = 4 * (model.parameters - model.head_parameters)
    artifact = weights + bytes_beside_weights(model)
    return Needs(
        disk_bytes=artifact,
        memory_bytes=IMPORTS_BYTES + round(COPIES_IN_MEMORY * weights),
        artifact_bytes=artifact,
    )


def make(source: Artifact, scheme: Scheme, out: Path, *, run: RunWorker, progress: Progress) -> Artifact:
    """Export, and compare with the original in padded batches of several shapes. Raises ToolError."""
    job = WorkerJob(
        tool="onnx_from_torch",
        environment=ENVIRONMENT,
        worker="onnx_export",
        request={"task": source.task, "opset": OPSET},
        scheme=scheme.name,
        format=WRITES[scheme.name],
    )
    return made_by_worker(job, source, out, run=run, progress=progress)

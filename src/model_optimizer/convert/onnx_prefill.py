"""The prefill of a decoder from PyTorch to ONNX in 32 bits: no KV cache, the logits of every place."""

from pathlib import Path

from model_optimizer.core import Artifact, ModelSpec, Needs, Progress, RunWorker, Scheme
from model_optimizer.system.making import WorkerJob, bytes_beside_weights, made_by_worker

READS = "safetensors"
FROM = frozenset({"fp32", "fp16", "bf16"})
WRITES = {"fp32": "onnx"}
TASKS = frozenset({"generate"})
ENVIRONMENT = "onnx"

OPSET = 20
"""As for embedding models: attention is written out, which engines build in every precision."""
IMPORTS_BYTES = 500_000_000
COPIES_IN_MEMORY = 2.5


def needs(model: ModelSpec, scheme: Scheme) -> Needs:
    weights = 4 * model.parameters
    artifact = weights + bytes_beside_weights(model)
    return Needs(
        disk_bytes=artifact,
        memory_bytes=IMPORTS_BYTES + round(COPIES_IN_MEMORY * weights),
        artifact_bytes=artifact,
    )


def make(source: Artifact, scheme: Scheme, out: Path, *, run: RunWorker, progress: Progress) -> Artifact:
    """Export, and compare logits in batches padded on either side. Raises ToolError."""
    job = WorkerJob(
        tool="onnx_prefill",
        environment=ENVIRONMENT,
        worker="onnx_prefill",
        request={"opset": OPSET},
        scheme=scheme.name,
        format=WRITES[scheme.name],
    )
    return made_by_worker(job, source, out, run=run, progress=progress)

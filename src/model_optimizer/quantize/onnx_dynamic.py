"""8-bit integer weights and activations for an ONNX graph, by ONNX Runtime's dynamic quantization.

Weights of matrix multiplications get one scale an output channel; activations one scale a tensor while
running. On processors without VNNI, where sums of 8-bit products overflow, weights keep to 7 bits.
"""

from pathlib import Path

from model_optimizer.core import Artifact, ModelSpec, Needs, Progress, RunWorker, Scheme
from model_optimizer.system.making import WorkerJob, bytes_beside_weights, made_by_worker

READS = "onnx"
FROM = frozenset({"fp32"})
WRITES = {"int8": "onnx"}
TASKS = frozenset({"embed", "rerank"})
ENVIRONMENT = "onnx"

# Seen with ONNX Runtime 1.31: 0.36 GB for a graph of 91 MB, 3.1 GB for one of 874 MB.
IMPORTS_BYTES = 200_000_000
COPIES_IN_MEMORY = 3.5


def needs(model: ModelSpec, scheme: Scheme) -> Needs:
    """Tables stay in 32 bits, all else takes a byte. The quantizer works on a copy of the graph."""
    exported = 4 * (model.parameters - model.head_parameters)
    matrices = model.parameters - model.head_parameters - model.embedding_parameters
    artifact = 4 * model.embedding_parameters + matrices + bytes_beside_weights(model)
    return Needs(
        disk_bytes=artifact + exported,
        memory_bytes=IMPORTS_BYTES + round(COPIES_IN_MEMORY * exported),
        artifact_bytes=artifact,
    )


def make(source: Artifact, scheme: Scheme, out: Path, *, run: RunWorker, progress: Progress) -> Artifact:
    """Quantize and run once. Raises ToolError."""
    job = WorkerJob(
        tool="onnx_dynamic",
        environment=ENVIRONMENT,
        worker="onnx_quantize",
        request={"method": "dynamic"},
        scheme=scheme.name,
        format=WRITES[scheme.name],
    )
    return made_by_worker(job, source, out, run=run, progress=progress)

"""16-bit precision in the graph, with norms, softmax and sums in 32 bits: what strongly typed engines ask
for.
"""

from pathlib import Path

from model_optimizer.core import Artifact, ModelSpec, Needs, Progress, RunWorker, Scheme
from model_optimizer.system.making import WorkerJob, bytes_beside_weights, made_by_worker

READS = "onnx_typed"
FROM = frozenset({"fp32"})
WRITES = {"fp16": "onnx_typed", "bf16": "onnx_typed"}
TASKS = frozenset({"embed", "rerank", "vision", "generate"})
ENVIRONMENT = "onnx"

IMPORTS_BYTES = 300_000_000
COPIES_IN_MEMORY = 3.5


def needs(model: ModelSpec, scheme: Scheme) -> Needs:
    weights = 2 * model.parameters
    artifact = weights + bytes_beside_weights(model)
    return Needs(
        disk_bytes=artifact,
        memory_bytes=IMPORTS_BYTES + round(2 * COPIES_IN_MEMORY * weights),
        artifact_bytes=artifact,
    )


def make(
    source: Artifact,
    scheme: Scheme,
    out: Path,
    *,
    run: RunWorker,
    progress: Progress,
    texts: tuple[str, ...] = (),
) -> Artifact:
    """Cast, and compare where a processor can run the result (FP16). Raises ToolError."""
    job = WorkerJob(
        tool="onnx_cast",
        environment=ENVIRONMENT,
        worker="onnx_cast",
        request={"texts": list(texts), "least_cosine": scheme.gate.cosine},
        scheme=scheme.name,
        format=WRITES[scheme.name],
    )
    return made_by_worker(job, source, out, run=run, progress=progress)

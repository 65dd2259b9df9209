"""Clean-up of an exported graph with onnxslim, dropped where it changes an answer. Begins the way to an
engine.
"""

from pathlib import Path

from model_optimizer.core import Artifact, ModelSpec, Needs, Progress, RunWorker, Scheme
from model_optimizer.system.making import WorkerJob, bytes_beside_weights, made_by_worker

READS = "onnx"
FROM = frozenset({"fp32"})
WRITES = {"fp32": "onnx_typed"}
TASKS = frozenset({"embed", "rerank", "vision", "generate"})
ENVIRONMENT = "onnx"

IMPORTS_BYTES = 300_000_000
COPIES_IN_MEMORY = 4.5
"""Seen with onnxslim 0.1.98: 3.9 GB for 874 MB of weights, 0.75 GB for 91 MB."""


def needs(model: ModelSpec, scheme: Scheme) -> Needs:
    weights = 4 * model.parameters
    artifact = weights + bytes_beside_weights(model)
    return Needs(
        disk_bytes=artifact,
        memory_bytes=IMPORTS_BYTES + round(COPIES_IN_MEMORY * weights),
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
    """Slim the graph, and compare. Raises ToolError."""
    job = WorkerJob(
        tool="onnx_clean",
        environment=ENVIRONMENT,
        worker="onnx_clean",
        request={"texts": list(texts)},
        scheme=scheme.name,
        format=WRITES[scheme.name],
    )
    return made_by_worker(job, source, out, run=run, progress=progress)

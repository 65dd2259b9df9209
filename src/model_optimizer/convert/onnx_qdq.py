"""INT8, FP8 and INT4 as quantize and dequantize nodes in the graph, the rest of it in FP16."""

from pathlib import Path

from model_optimizer.core import Artifact, ModelSpec, Needs, Progress, RunWorker, Scheme
from model_optimizer.system.making import WorkerJob, bytes_beside_weights, made_by_worker

READS = "onnx_typed"
FROM = frozenset({"fp32"})
WRITES = {"int8": "onnx_typed", "fp8": "onnx_typed", "int4_rtn": "onnx_typed"}
TASKS = frozenset({"embed", "rerank", "vision", "generate"})
ENVIRONMENT = "onnx"

IMPORTS_BYTES = 400_000_000
COPIES_IN_MEMORY = 5.0
"""Seen with ONNX Runtime 1.31: 4.3 GB for 874 MB of weights."""


def needs(model: ModelSpec, scheme: Scheme) -> Needs:
    table = model.embedding_parameters
    artifact = (model.parameters - table) * scheme.weight_bits // 8 + 2 * table + bytes_beside_weights(model)
    return Needs(
        disk_bytes=artifact + 8 * model.parameters,
        memory_bytes=IMPORTS_BYTES + round(4 * COPIES_IN_MEMORY * model.parameters),
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
    images: Path | None = None,
    rest: str = "fp16",
) -> Artifact:
    """Calibrate, quantize, and compare. Raises ToolError when too little is left of the answers."""
    job = WorkerJob(
        tool="onnx_qdq",
        environment=ENVIRONMENT,
        worker="onnx_qdq",
        request={
            "texts": list(texts),
            "images": str(images) if images else None,
            "calibration_count": len(texts) or None,
            "block_size": scheme.group_size or 32,
            "least_cosine": scheme.gate.cosine,
            "rest": rest,
        },
        scheme=scheme.name,
        format=WRITES[scheme.name],
    )
    return made_by_worker(job, source, out, run=run, progress=progress)

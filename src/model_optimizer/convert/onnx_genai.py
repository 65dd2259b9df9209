"""Language models for ONNX Runtime GenAI on the CPU: 32 bits, or integer weights in blocks of 32.

The builder's 8-bit models keep the embedding table in 32 bits; its 4-bit models share the 4-bit output
head as the embedding where the model ties the two, and keep a table in 32 bits where it does not.
"""

from dataclasses import dataclass
from functools import cache
from pathlib import Path

from model_optimizer.core import Artifact, ModelSpec, Needs, Progress, RunWorker, Scheme
from model_optimizer.system.making import WorkerJob, made_by_worker

READS = "safetensors"
FROM = frozenset({"fp32", "fp16", "bf16"})
WRITES = {"fp32": "onnx_genai", "int8_weight": "onnx_genai", "int4_rtn": "onnx_genai"}
TASKS = frozenset({"generate"})
ENVIRONMENT = "onnx"

PRECISION = {"fp32": "fp32", "int8_weight": "int8", "int4_rtn": "int4"}
SCALE_BYTES = 4

# Seen with onnxruntime-genai 0.18: 3.1 GB, 3.9 GB and 3.1 GB for 874 MB of weights in 32 bits.
IMPORTS_BYTES = 500_000_000
COPIES_IN_MEMORY = {"fp32": 3.1, "int8_weight": 4.0, "int4_rtn": 3.1}
GRAPH_AND_TOKENIZER_BYTES = 20_000_000


def needs(model: ModelSpec, scheme: Scheme) -> Needs:
    """The parts that are written, by what the builder does with embeddings; see the top of the file."""
    artifact = _weights(model, scheme) + _rotary_tables(model) + GRAPH_AND_TOKENIZER_BYTES
    copies = COPIES_IN_MEMORY[scheme.name] * 4 * model.parameters
    return Needs(disk_bytes=artifact, memory_bytes=IMPORTS_BYTES + round(copies), artifact_bytes=artifact)


def refuses(model: ModelSpec) -> str | None:
    """The builder knows a list of architectures."""
    builder = _builder()
    if model.architecture in builder.architectures:
        return None
    return f"onnxruntime-genai {builder.version} has no builder for {model.architecture}"


def make(source: Artifact, scheme: Scheme, out: Path, *, run: RunWorker, progress: Progress) -> Artifact:
    """Build, read what was built, and compare its logits with the original's. Raises ToolError."""
    job = WorkerJob(
        tool="onnx_genai",
        environment=ENVIRONMENT,
        worker="onnx_genai_build",
        request={"precision": PRECISION[scheme.name], "block_size": scheme.group_size},
        scheme=scheme.name,
        format=WRITES[scheme.name],
    )
    return made_by_worker(job, source, out, run=run, progress=progress)


def _weights(model: ModelSpec, scheme: Scheme) -> int:
    if scheme.weight_bits == 32:
        return 4 * model.parameters
    each = scheme.weight_bits / 8 + SCALE_BYTES / scheme.group_size
    if not model.tied_embeddings:
        return round(4 * model.embedding_parameters + each * (model.parameters - model.embedding_parameters))
    table = 0 if scheme.weight_bits == 4 else 4 * model.embedding_parameters
    return round(table + each * model.parameters)


def _rotary_tables(model: ModelSpec) -> int:
    """Cosines and sines for every position, half a head wide each, in 32 bits."""
    return 4 * (model.max_position or 0) * model.head_dim


@dataclass(frozen=True, slots=True, kw_only=True)
class _Builder:
    """The content of onnx_genai.toml."""

    version: str
    source: str
    architectures: frozenset[str]


@cache
def _builder() -> _Builder:
    import msgspec

    return msgspec.toml.decode(Path(__file__).with_suffix(".toml").read_bytes(), type=_Builder)

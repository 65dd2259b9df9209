"""Language models for ONNX Runtime GenAI on the CPU: 32 bits, or integer weights in blocks of 32.

The output head has 8 bits in 4-bit models too. Where the model ties the two, it is the embedding table as
well; elsewhere that table stays in 32 bits. Why 8 bits and zero points in 4-bit models: a trained model of 5
million parameters kept 96.5 % of its perplexity so, 94.2 % with the builder's defaults (a head of 4 bits,
symmetric), for 4.13 MB instead of 3.51 MB.
"""

from dataclasses import dataclass
from functools import cache
from pathlib import Path

from model_optimizer.core import Artifact, ModelSpec, Needs, Progress, RunWorker, Scheme
from model_optimizer.system.making import WorkerJob, bytes_beside_weights, made_by_worker

READS = "safetensors"
FROM = frozenset({"fp32", "fp16", "bf16"})
WRITES = {"fp32": "onnx_genai", "int8_weight": "onnx_genai", "int4_rtn": "onnx_genai"}
TASKS = frozenset({"generate"})
ENVIRONMENT = "onnx"

PRECISION = {"fp32": "fp32", "int8_weight": "int8", "int4_rtn": "int4"}
OPTIONS = {
    "fp32": (),
    "int8_weight": ("algo_config=rtn", "is_symmetric=true"),
    # Rounded to nearest; rtn_last: the last matrix (the output head) in 8 bits.
    "int4_rtn": ("algo_config=rtn_last", "is_symmetric=false"),
}
HEAD_BITS = {"fp32": 32, "int8_weight": 8, "int4_rtn": 8}
SCALE_BYTES = 4

# Seen with onnxruntime-genai 0.18: 3.1 GB, 4.6 GB and 4.6 GB for 874 MB of weights in 32 bits, of which
# 622 MB are the output head; rounding to nearest holds the largest matrix several times.
IMPORTS_BYTES = 500_000_000
COPIES_IN_MEMORY = 3.1
COPIES_OF_HEAD = {"fp32": 0.0, "int8_weight": 2.4, "int4_rtn": 2.4}


def needs(model: ModelSpec, scheme: Scheme) -> Needs:
    """The parts that are written, by what the builder does with embeddings; see the top of the file."""
    artifact = _weights(model, scheme) + _rotary_tables(model) + bytes_beside_weights(model)
    head = max(model.head_parameters, model.embedding_parameters)
    copies = 4 * (COPIES_IN_MEMORY * model.parameters + COPIES_OF_HEAD[scheme.name] * head)
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
        request={"precision": PRECISION[scheme.name], "options": _options(scheme)},
        scheme=scheme.name,
        format=WRITES[scheme.name],
    )
    return made_by_worker(job, source, out, run=run, progress=progress)


def _options(scheme: Scheme) -> list[str]:
    blocks = [f"block_size={scheme.group_size}"] if scheme.group_size else []
    return [*blocks, *OPTIONS[scheme.name]]


def _weights(model: ModelSpec, scheme: Scheme) -> int:
    """The head apart from the body, and a table of its own where it is not the head's."""
    if scheme.weight_bits == 32:
        return 4 * model.parameters
    tied = model.tied_embeddings
    head = model.embedding_parameters if tied else model.head_parameters
    body = model.parameters - model.embedding_parameters - model.head_parameters
    table = 0 if tied else 4 * model.embedding_parameters
    return round(
        table + _each(scheme.weight_bits, scheme) * body + _each(HEAD_BITS[scheme.name], scheme) * head
    )


def _each(bits: int, scheme: Scheme) -> float:
    """Bytes a weight, with its share of a scale and of a zero point."""
    zero_point = bits / 8 if "is_symmetric=false" in OPTIONS[scheme.name] else 0
    return bits / 8 + (SCALE_BYTES + zero_point) / scheme.group_size


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

"""INT8, FP8 and INT4 as quantize and dequantize nodes in the graph, the rest of it in FP16."""

from model_optimizer.core import ModelSpec, Scheme

from . import _drive

READS = "onnx_typed"
FROM = frozenset({"fp32"})
WRITES = {"int8": "onnx_typed", "fp8": "onnx_typed", "int4_rtn": "onnx_typed"}
TASKS = frozenset({"embed", "rerank", "vision", "generate"})
ENVIRONMENT = _drive.ENVIRONMENT


def _weights(model: ModelSpec, scheme: Scheme) -> int:
    """Matrices in the scheme's bits, the table in 16."""
    table = model.embedding_parameters
    return (model.parameters - table) * scheme.weight_bits // 8 + 2 * table


DRIVE = _drive.Drive(
    tool="onnx_qdq",
    writes=WRITES,
    request=lambda _source, scheme: {
        "block_size": scheme.group_size or 32,
        "least_cosine": scheme.gate.cosine,
        "rest": "fp16",
    },
    artifact=_drive.with_tokenizer(_weights),
    imports_bytes=400_000_000,
    copies=5.0,  # seen with ONNX Runtime 1.31: 4.3 GB for 874 MB of weights
    spare=lambda model: 8 * model.parameters,
)
needs, make = DRIVE.needs, DRIVE.make_calibrated

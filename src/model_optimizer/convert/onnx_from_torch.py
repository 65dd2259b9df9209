"""Embedding models and cross-encoders from PyTorch to ONNX in 32 bits, pooling and normalisation included."""

from model_optimizer.core import ModelSpec

from . import _drive

READS = "safetensors"
FROM = frozenset({"fp32", "fp16", "bf16"})
WRITES = {"fp32": "onnx"}
TASKS = frozenset({"embed", "rerank"})
ENVIRONMENT = _drive.ENVIRONMENT

# With a later opset the exporter fuses rotary embeddings with tables for a batch of one, or keeps
# attention as one operator that runs in 16 bits only (PyTorch 2.13).
OPSET = 20


def _weights(model: ModelSpec) -> int:
    """The head of a language model is left out; all else is written once in 32 bits."""
    return 4 * (model.parameters - model.head_parameters)


DRIVE = _drive.Drive(
    tool="onnx_from_torch",
    worker="onnx_export",
    writes=WRITES,
    request=lambda source, _scheme: {"task": source.task, "opset": OPSET},
    artifact=_drive.with_tokenizer(lambda model, _scheme: _weights(model)),
    imports_bytes=500_000_000,
    copies=2.3,  # seen with PyTorch 2.13: 0.68 GB for 91 MB of weights in 32 bits, 2.1 GB for 874 MB
    held=_weights,
)
needs, make = DRIVE.needs, DRIVE.make

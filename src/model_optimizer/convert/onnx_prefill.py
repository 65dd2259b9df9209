"""The prefill of a decoder from PyTorch to ONNX in 32 bits: no KV cache, the logits of every place."""

from . import _drive

READS = "safetensors"
FROM = frozenset({"fp32", "fp16", "bf16"})
WRITES = {"fp32": "onnx"}
TASKS = frozenset({"generate"})
ENVIRONMENT = _drive.ENVIRONMENT

OPSET = 20
"""As for embedding models: attention is written out, which engines build in every precision."""

DRIVE = _drive.Drive(
    tool="onnx_prefill",
    writes=WRITES,
    request=lambda _source, _scheme: {"opset": OPSET},
    artifact=_drive.with_tokenizer(lambda model, _scheme: 4 * model.parameters),
    imports_bytes=500_000_000,
    copies=2.5,
)
needs, make = DRIVE.needs, DRIVE.make

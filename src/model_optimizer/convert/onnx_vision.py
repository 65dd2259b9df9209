"""Models of images from PyTorch to ONNX in 32 bits: classifiers, and segmenters of free image size."""

from . import _drive

READS = "safetensors"
FROM = frozenset({"fp32", "fp16", "bf16"})
WRITES = {"fp32": "onnx"}
TASKS = frozenset({"vision"})
ENVIRONMENT = _drive.ENVIRONMENT

OPSET = 20
"""As for embedding models; TensorRT 10.0 and later read it."""
GRAPH_BYTES = 1_000_000

DRIVE = _drive.Drive(
    tool="onnx_vision",
    writes=WRITES,
    request=lambda _source, _scheme: {"opset": OPSET},
    artifact=lambda model, _scheme: 4 * model.parameters + GRAPH_BYTES,
    imports_bytes=600_000_000,
    copies=2.5,
)
needs, make = DRIVE.needs, DRIVE.make

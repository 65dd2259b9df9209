"""An .onnx file from elsewhere as a folder of ours, from which all further steps go on."""

from . import _drive

READS = "onnx_file"
FROM: frozenset[str] = frozenset()
WRITES = {
    "fp32": "onnx", "fp16": "onnx_typed", "bf16": "onnx_typed", "int8": "onnx_typed", "fp8": "onnx_typed",
    "int4_rtn": "onnx_typed",
}  # fmt: skip
TASKS = frozenset({"embed", "rerank", "vision"})
ENVIRONMENT = _drive.ENVIRONMENT

DRIVE = _drive.Drive(
    tool="onnx_taken",
    writes=WRITES,
    request=lambda _source, _scheme: {},
    artifact=lambda model, scheme: model.parameters * max(4, scheme.weight_bits // 8) + 1_000_000,
    imports_bytes=150_000_000,
    copies=2.2,
)
needs, make = DRIVE.needs, DRIVE.make

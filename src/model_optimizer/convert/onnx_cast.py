"""16-bit precision in the graph, with norms, softmax and sums in 32 bits: what strongly typed engines ask
for.
"""

from . import _drive

READS = "onnx_typed"
FROM = frozenset({"fp32"})
WRITES = {"fp16": "onnx_typed", "bf16": "onnx_typed"}
TASKS = frozenset({"embed", "rerank", "vision", "generate"})
ENVIRONMENT = _drive.ENVIRONMENT

DRIVE = _drive.Drive(
    tool="onnx_cast",
    writes=WRITES,
    request=lambda _source, scheme: {"least_cosine": scheme.gate.cosine},
    artifact=_drive.with_tokenizer(lambda model, _scheme: 2 * model.parameters),
    imports_bytes=300_000_000,
    copies=3.5,
)
needs, make = DRIVE.needs, DRIVE.make_compared

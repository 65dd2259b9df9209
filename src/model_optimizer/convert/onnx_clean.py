"""Clean-up of an exported graph with onnxslim, dropped where it changes an answer. Begins the way to an
engine.
"""

from . import _drive

READS = "onnx"
FROM = frozenset({"fp32"})
WRITES = {"fp32": "onnx_typed"}
TASKS = frozenset({"embed", "rerank", "vision", "generate"})
ENVIRONMENT = _drive.ENVIRONMENT

DRIVE = _drive.Drive(
    tool="onnx_clean",
    writes=WRITES,
    request=lambda _source, _scheme: {},
    artifact=_drive.with_tokenizer(lambda model, _scheme: 4 * model.parameters),
    imports_bytes=300_000_000,
    copies=4.5,  # seen with onnxslim 0.1.98: 3.9 GB for 874 MB of weights, 0.75 GB for 91 MB
)
needs, make = DRIVE.needs, DRIVE.make_compared

"""FP8, integers and MXFP4 rounded to nearest, without data, by llm-compressor's model-free path.

One tensor is in memory at a time. A job that was killed goes on behind the last finished file.
"""

from collections.abc import Mapping
from typing import Any

from model_optimizer.core import Scheme

from . import _compressor
from ._choices import Choices

READS = "safetensors"
FROM = _compressor.FLOATS
WRITES = {
    "fp8": "compressed_tensors",
    "fp8_block": "compressed_tensors",
    "int8_weight": "compressed_tensors",
    "int4_rtn": "compressed_tensors",
    "mxfp4": "compressed_tensors",
}
TASKS = frozenset({"generate", "embed", "rerank"})
ENVIRONMENT = "llm_compressor"
TAKES_CHOICES = True

PRESETS = {
    "fp8": "FP8_DYNAMIC", "fp8_block": "FP8_BLOCK", "int8_weight": "W8A16", "int4_rtn": "W4A16",
    "mxfp4": "MXFP4A16",
}  # fmt: skip
"""compressed-tensors' names."""

GROUPED = frozenset({"int8_weight", "int4_rtn", "mxfp4"})
"""With a group size; blocks of FP8 are always 128 x 128."""


def _request(scheme: Scheme, choices: Choices) -> Mapping[str, Any]:
    del choices
    return {"preset": PRESETS[scheme.name], "group_size": scheme.group_size if scheme.name in GROUPED else 0}


DRIVE = _compressor.Drive(
    tool="data_free",
    environment=ENVIRONMENT,
    worker="quantize_free",
    request=_request,
    format="compressed_tensors",
    calibrated=False,
)
needs, make = DRIVE.needs, DRIVE.make

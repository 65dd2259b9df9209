"""4-bit integer weights, errors compensated column by column (GPTQ with act-order), by llm-compressor."""

from collections.abc import Mapping
from typing import Any

from model_optimizer.core import Scheme

from . import _compressor
from ._choices import Choices

READS = "safetensors"
FROM = _compressor.FLOATS
WRITES = {"gptq_int4": "compressed_tensors"}
TASKS = frozenset({"generate", "embed", "rerank"})
ENVIRONMENT = "llm_compressor"
TAKES_CHOICES = True


def _request(scheme: Scheme, choices: Choices) -> Mapping[str, Any]:
    return {
        "method": "gptq",
        "preset": "W4A16",
        "group_size": scheme.group_size,
        "symmetric": choices.symmetric,
    }


DRIVE = _compressor.Drive(
    tool="gptq",
    environment=ENVIRONMENT,
    worker="quantize_calibrated",
    request=_request,
    format="compressed_tensors",
    hessian=True,
)
needs, make = DRIVE.needs, DRIVE.make

"""8-bit integer weights and activations (SmoothQuant, then GPTQ), by llm-compressor.

Encoders have no norm before their layers that could take the scales: for them it is GPTQ alone.
"""

from collections.abc import Mapping
from typing import Any

from model_optimizer.core import Scheme

from . import _compressor
from ._choices import Choices

READS = "safetensors"
FROM = _compressor.FLOATS
WRITES = {"int8": "compressed_tensors"}
TASKS = frozenset({"generate", "embed", "rerank"})
ENVIRONMENT = "llm_compressor"
TAKES_CHOICES = True


def _request(scheme: Scheme, choices: Choices) -> Mapping[str, Any]:
    del scheme, choices
    return {"method": "smoothquant", "preset": "W8A8", "group_size": 0}


DRIVE = _compressor.Drive(
    tool="smoothquant",
    environment=ENVIRONMENT,
    worker="quantize_calibrated",
    request=_request,
    format="compressed_tensors",
    hessian=True,
)
needs, make = DRIVE.needs, DRIVE.make

"""A format for each layer under a budget of bits (FP8, NVFP4 or none), by NVIDIA ModelOpt."""

from collections.abc import Mapping
from typing import Any

from model_optimizer.core import Scheme

from . import _compressor
from ._choices import Choices

READS = "safetensors"
FROM = _compressor.FLOATS
WRITES = {"mixed": "modelopt"}
TASKS = frozenset({"generate"})
ENVIRONMENT = "modelopt"
TAKES_CHOICES = True

FORMATS = ("NVFP4_DEFAULT_CFG", "FP8_DEFAULT_CFG")
"""ModelOpt's names of what a layer may get."""


def _request(scheme: Scheme, choices: Choices) -> Mapping[str, Any]:
    return {"formats": list(FORMATS), "bits": choices.bits or float(scheme.weight_bits)}


DRIVE = _compressor.Drive(
    tool="auto_quantize",
    environment=ENVIRONMENT,
    worker="quantize_mixed",
    request=_request,
    format="modelopt",
)
needs, make = DRIVE.needs, DRIVE.make

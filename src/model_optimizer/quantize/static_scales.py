"""Formats whose scales of activations or of the KV cache are fixed beforehand, by llm-compressor."""

from collections.abc import Mapping
from typing import Any

from model_optimizer.core import Scheme

from . import _compressor
from ._choices import Choices

READS = "safetensors"
FROM = _compressor.FLOATS
WRITES = {"fp8_static": "compressed_tensors", "fp8_kv": "compressed_tensors", "nvfp4": "compressed_tensors"}
TASKS = frozenset({"generate", "embed", "rerank"})
ENVIRONMENT = "llm_compressor"
TAKES_CHOICES = True

PRESETS = {"fp8_static": "FP8", "fp8_kv": "FP8_DYNAMIC", "nvfp4": "NVFP4"}
"""compressed-tensors' names."""


def _request(scheme: Scheme, choices: Choices) -> Mapping[str, Any]:
    del choices
    return {
        "method": "static",
        "preset": PRESETS[scheme.name],
        "group_size": scheme.group_size,
        "kv": scheme.kv_bits < 16,
    }


DRIVE = _compressor.Drive(
    tool="static_scales",
    environment=ENVIRONMENT,
    worker="quantize_calibrated",
    request=_request,
    format="compressed_tensors",
)
needs, make = DRIVE.needs, DRIVE.make

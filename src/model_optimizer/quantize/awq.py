"""4-bit integer weights, scaled by what activations say (AWQ), by llm-compressor."""

from collections.abc import Mapping
from typing import Any

from model_optimizer.core import ModelSpec, Scheme

from . import _compressor
from ._choices import Choices

READS = "safetensors"
FROM = _compressor.FLOATS
WRITES = {"awq_int4": "compressed_tensors"}
TASKS = frozenset({"generate", "embed", "rerank"})
ENVIRONMENT = "llm_compressor"
TAKES_CHOICES = True


def _request(scheme: Scheme, choices: Choices) -> Mapping[str, Any]:
    return {
        "method": "awq",
        "preset": "W4A16",
        "group_size": scheme.group_size,
        "symmetric": choices.symmetric,
        "search_steps": choices.search_steps,
    }


DRIVE = _compressor.Drive(
    tool="awq",
    environment=ENVIRONMENT,
    worker="quantize_calibrated",
    request=_request,
    format="compressed_tensors",
)
needs, make = DRIVE.needs, DRIVE.make


def refuses(model: ModelSpec) -> str | None:
    """Scales are folded into the norm before a layer; encoders have theirs behind it."""
    if model.groups and model.kv_bytes_per_token() > 0:
        return None
    return "AWQ folds its scales into the norm before each layer, and an encoder like BERT has none there"

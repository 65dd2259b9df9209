"""Layer `format` of a checkpoint folder: what it is, who will read it, and the linter over both.

Nothing is loaded and no weights are read, so that it takes a second for any size.
"""

import contextlib
from collections.abc import Mapping
from pathlib import Path

import msgspec

from model_optimizer.core import Artifact, Engine, ModelSpec, Quantization, Scheme, UsageError, Verdict
from model_optimizer.system import models
from model_optimizer.system.models import config, quantization
from model_optimizer.verify import format as linting
from model_optimizer.verify import subject
from model_optimizer.verify.format_engine import Target

FORMATS = {"compressed-tensors": "compressed_tensors", "modelopt": "modelopt"}
QUANTIZED = frozenset(FORMATS.values())
"""Formats of quantized checkpoints, which can be looked at."""


def verify_format(
    path: Path,
    target: Target,
    *,
    engines: Mapping[str, Engine],
    schemes: Mapping[str, Scheme],
    scheme: str | None = None,
) -> Verdict:
    """The verdict. UsageError for what is no checkpoint, a broken file, GGUF, and unknown engines or GPUs."""
    spec = _spec(path)
    quantized = _quantization(path, spec)
    name = scheme or _own_word(path) or (quantized.scheme if quantized else _plain(spec))
    artifact = Artifact(
        path=str(path),
        format=FORMATS.get(quantized.method, "safetensors") if quantized else "safetensors",
        scheme=name or "unknown",
        task=spec.task if spec else "generate",
        bytes=0,
        digest="",
    )
    found = linting.Lint(
        artifact=artifact,
        spec=spec,
        scheme=schemes.get(name or ""),
        target=target,
        engines=engines,
        schemes=schemes,
    )
    return linting.verify_format(found)


def _spec(path: Path) -> ModelSpec | None:
    """None for an architecture that is not known; what is wrong with files, the linter says."""
    with contextlib.suppress(UsageError):
        return models.read(str(path))
    return None


def _quantization(path: Path, spec: ModelSpec | None) -> Quantization | None:
    if spec is not None:
        return spec.quantization
    with contextlib.suppress(UsageError):
        return quantization.read(config.read(path / "config.json"))
    return None


def _own_word(path: Path) -> str | None:
    """The scheme in mopt.json: numbers do not show how they were rounded."""
    try:
        return msgspec.json.decode((path / subject.FACTS).read_bytes(), type=subject.Facts).scheme
    except (OSError, msgspec.MsgspecError):
        return None


def _plain(spec: ModelSpec | None) -> str | None:
    return spec.dtype if spec else None

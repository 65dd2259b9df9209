"""The original checkpoint as an artefact, and the tokenizer files beside it."""

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import msgspec

from model_optimizer.core import Artifact, HostError, ModelSpec, UsageError, digest
from model_optimizer.system import files
from model_optimizer.system.safetensors_header import Tensor

from . import folder as folders
from .spec import NAMES

TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "vocab.txt",
    "tokenizer.model",
    "spiece.model",
    "sentencepiece.bpe.model",
    "chat_template.jinja",
    "chat_template.json",
    "tekken.json",
    "preprocessor_config.json",
    "processor_config.json",
)


FORMATS = {"compressed-tensors": "compressed_tensors", "modelopt": "modelopt"}
"""Methods of quantization that are formats of their own."""


class _About(msgspec.Struct):
    scheme: str | None = None


def checkpoint_artifact(spec: ModelSpec) -> Artifact:
    """The safetensors folder of a model as the artefact that everything else is made from.

    Its scheme is that of the checkpoint's own quantization, else its number format (fp32, bf16, fp16); its
    format is `safetensors`, or what a quantizer for servers writes, which engines read in ways of their own.
    The digest is of the whole content; it is remembered until a file changes. Raises UsageError when the
    model is not a folder with weights on this machine.
    """
    path = require_weights(spec)
    folder = folders.look(path)
    if spec.quantization is not None:
        scheme = _own_word(path) or spec.quantization.scheme or spec.quantization.method
    else:
        scheme = stored_format(folder.tensors()) or spec.dtype or "unknown"
    return Artifact(
        path=str(path),
        format=FORMATS.get(spec.quantization.method, "safetensors") if spec.quantization else "safetensors",
        scheme=scheme,
        task=spec.task,
        bytes=folder.checkpoint_bytes or 0,
        digest=content_digest(path),
    )


def require_weights(spec: ModelSpec) -> Path:
    """The folder of a model. Raises UsageError, with the command that fetches it, where none is here."""
    if spec.path is None:
        raise UsageError(
            f"`{spec.name}` has no weights on this machine",
            cause=(f"it was read from {spec.provenance}",),
            hint=_ways(spec),
            reference="model-weights",
        )
    return Path(spec.path)


def _ways(spec: ModelSpec) -> tuple[str, ...]:
    """How a model comes to this machine: one of the hub keeps its id, another is a folder."""
    folder = "download the model, and pass its folder"
    if "/" not in spec.name or (spec.provenance or "").startswith("the file"):
        return (folder,)
    fetch = f"hf download {spec.name}   (of `pip install huggingface_hub`); then its id is enough"
    return (fetch, f"or {folder}")


def _own_word(path: Path) -> str | None:
    """The scheme in mopt.json, if this product made the folder: numbers do not show how they were rounded."""
    try:
        return msgspec.json.decode((path / "mopt.json").read_bytes(), type=_About).scheme
    except (OSError, msgspec.MsgspecError):
        return None


def stored_format(tensors: Mapping[str, Tensor]) -> str | None:
    """The number format that most elements are stored in."""
    counts: dict[str, int] = {}
    for tensor in tensors.values():
        if tensor.dtype in NAMES:
            counts[tensor.dtype] = counts.get(tensor.dtype, 0) + tensor.elements
    return NAMES[max(counts, key=lambda name: counts[name])] if counts else None


def tokenizer_files(spec: ModelSpec) -> tuple[Path, ...]:
    """The files that a tokenizer or processor is loaded from, in the model's folder; () without a folder."""
    if spec.path is None:
        return ()
    return tuple(path for name in TOKENIZER_FILES if (path := Path(spec.path) / name).is_file())


def content_digest(path: Path) -> str:
    """`core.digest.of_path`, remembered by path, size and time of change of every file.

    What is remembered lies in the user's cache folder; a cache that cannot be written is done without.
    """
    import hashlib
    import json

    seen = [
        (file.relative_to(path).as_posix(), found.st_size, found.st_mtime_ns)
        for file in sorted(p for p in path.rglob("*") if p.is_file())
        for found in (file.stat(),)
    ]
    state = hashlib.sha256(json.dumps([str(path.resolve()), seen]).encode()).hexdigest()
    remembered = (
        files.data_home()
        / "cache"
        / "digests"
        / hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:32]
    )
    with suppress(OSError, UnicodeDecodeError):
        known, _, value = remembered.read_text().partition(" ")
        if known == state and value.startswith("sha256:"):
            return value.strip()
    value = digest.of_path(path)
    with suppress(HostError):
        files.write_atomic(remembered, f"{state} {value}\n")
    return value

"""What a checkpoint must be before it is quantized: whole, not quantized already, with a tokenizer."""

import json
import re
from pathlib import Path

from model_optimizer.core import UsageError
from model_optimizer.core.paths import Order
from model_optimizer.system.models.folder import Folder, look
from model_optimizer.system.models.gaps import gaps

NARROW = ("F8_", "F4", "F6_")
"""How the names of floats that nobody trains in begin."""

SCALES = frozenset(
    {"weight_scale", "weight_scale_inv", "weight_scale_2", "weight_packed", "qweight", "qzeros", "absmax"}
)
"""Last words of tensors that only quantized layers have."""

TOKENIZERS = ("tokenizer.json", "tokenizer.model", "vocab.txt", "vocab.json")
JSON_FILES = ("tokenizer.json", "tokenizer_config.json")


def require_whole(order: Order) -> None:
    """Refuse what would be copied, and answered by with noise or not at all. Raises UsageError."""
    path = Path(order.source.path)
    if not path.is_dir():
        return
    folder = look(path)
    _require_unquantized(order.model.name, folder)
    _require_weights(order, folder)
    if order.model.task in ("generate", "embed", "rerank"):
        _require_tokenizer(order.model.name, path)


def require_upright(order: Order) -> None:
    """GPT-2 stores layers as (inputs, outputs): a quantizer would round across what belongs together."""
    path = Path(order.source.path)
    if not path.is_dir():
        return
    wanted = {
        _kind(w.name): w.shape for w in order.model.weights if len(w.shape) == 2 and len(set(w.shape)) == 2
    }
    tensors = look(path).tensors()
    turned = sorted(
        n for n, t in tensors.items() if len(t.shape) == 2 and wanted.get(_kind(n)) == t.shape[::-1]
    )
    if turned:
        raise UsageError(
            f"layers of `{order.model.name}` are stored with inputs and outputs exchanged",
            cause=(f"`{turned[0]}` is {' x '.join(map(str, tensors[turned[0]].shape))}",),
            hint=("no quantizer here takes such a model (GPT-2 and its kin): serve it in 16 bits",),
            reference="cannot-be-made",
        )


def _kind(name: str) -> str:
    """Without numbers, and without the word that some checkpoints leave out."""
    return re.sub(r"(?<=\.)\d+(?=\.)", "*", re.sub(r"^(transformer|model)\.", "", name))


def _require_unquantized(name: str, folder: Folder) -> None:
    """Where config.json does not say it: a file of it was lost, or it was put together by hand."""
    found = next(
        (
            f"`{tensor}` ({held.dtype})"
            for tensor, held in folder.tensors().items()
            if held.dtype.startswith(NARROW) or tensor.rpartition(".")[2] in SCALES
        ),
        None,
    )
    if found:
        raise UsageError(
            f"`{name}` holds quantized layers, and its config.json does not say so",
            cause=(found,),
            hint=("start from the original checkpoint", "`mopt verify DIR --layer format` looks at this one"),
            reference="already-quantized",
        )


def _require_weights(order: Order, folder: Folder) -> None:
    """A quantizer copies what is there, an engine starts with it, and what it answers is noise."""
    modules = [name.removesuffix(".weight") for name in folder.tensors() if name.endswith(".weight")]
    found = gaps(order.model, modules)
    if found:
        raise UsageError(
            f"`{order.model.name}` lacks weights of its layers",
            cause=tuple(found[:3]),
            hint=("download or copy the checkpoint again",),
            reference="model-weights",
        )


def _require_tokenizer(name: str, path: Path) -> None:
    if not any((path / file).is_file() for file in TOKENIZERS):
        raise UsageError(
            f"`{name}` holds no tokenizer",
            cause=(f"none of {', '.join(TOKENIZERS)} is there",),
            hint=("put the tokenizer of the original model beside its weights",),
            reference="no-tokenizer",
        )
    for file in JSON_FILES:
        try:
            content = (path / file).read_bytes() if (path / file).is_file() else b"{}"
            whole = isinstance(json.loads(content), dict)
            cause = "it is no JSON object"
        except (OSError, ValueError, RecursionError) as error:
            whole, cause = False, str(error)
        if not whole:
            raise UsageError(
                f"`{path / file}` cannot be read as a tokenizer",
                cause=(cause,),
                hint=("download or copy the file again",),
                reference="no-tokenizer",
            )

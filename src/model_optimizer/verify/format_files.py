"""Rules about files: the index, the tokenizer, sizes, weights that are stored twice. One function a rule."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePath
from typing import cast

from model_optimizer.core import Comparison, ModelSpec, units

from .format_checkpoint import INDEX, Checkpoint
from .format_claims import Claims
from .format_found import checked, refused, remark

LARGEST_RATIO = 0.95
"""Layers of more than this share of their size in 16 bits were not quantized (assumed)."""

TOKENIZERS = frozenset(
    {"tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt", "spiece.model",
     "sentencepiece.bpe.model", "tekken.json"}
)  # fmt: skip
TOKENIZER_JSON = ("tokenizer.json", "tokenizer_config.json")
LARGEST_JSON = 256 << 20
EMBEDDING = (
    "model.embed_tokens.weight",
    "transformer.wte.weight",
    "model.language_model.embed_tokens.weight",
)
HEAD = "lm_head.weight"


def index(checkpoint: Checkpoint) -> Iterator[Comparison]:
    """The index names every tensor, in the file that holds it, once."""
    reference = f"{INDEX}: loaders open only the files that it names"
    faults = [f"`{name}` lies in two files" for name in checkpoint.twice]
    mapped = checkpoint.index
    if mapped is None:
        yield checked(
            "index", faults, of=len(checkpoint.tensors), what="tensors, no index", reference=reference
        )
        return
    for name, stored in checkpoint.tensors.items():
        if name not in mapped:
            faults.append(f"`{name}` is not in the index")
        elif mapped[name] != stored.file and name not in checkpoint.twice:
            faults.append(f"`{name}` is said to lie in {PurePath(mapped[name]).name}")
    faults += [
        f"`{name}` is in the index and in no file" for name in mapped if name not in checkpoint.tensors
    ]
    yield checked("index", faults, of=len(mapped), what="tensors in the index", reference=reference)
    promised = checkpoint.promised_bytes
    if promised is not None and promised != checkpoint.size:
        says = f"total_size says {units.show_bytes(promised)}, there are {units.show_bytes(checkpoint.size)}"
        yield remark("index_size", says, reference="some loaders plan memory by it")


def tokenizer(checkpoint: Checkpoint) -> Iterator[Comparison]:
    """A tokenizer is there; a server without one answers nothing."""
    have = checkpoint.beside & TOKENIZERS
    faults = [] if have else ["no tokenizer.json, tokenizer.model or vocabulary"]
    faults += [f"`{name}` {why}" for name in TOKENIZER_JSON if (why := _no_object(checkpoint.path / name))]
    yield checked(
        "tokenizer",
        faults,
        of=len(have),
        what="files",
        reference="servers read it from the same folder",
        hint="copy it from the original checkpoint",
    )


def vocabulary(checkpoint: Checkpoint) -> Iterator[Comparison]:
    """Every token of the tokenizer has a row in the embedding; silent where all have one.

    Tokens that were added behind the vocabulary are not counted: images and the like have rows elsewhere.
    """
    embedding = next((name for name in EMBEDDING if name in checkpoint.tensors), None)
    largest = _largest_token(checkpoint.path / "tokenizer.json")
    if embedding is None or largest is None or not checkpoint.tensors[embedding].tensor.shape:
        return
    rows = checkpoint.tensors[embedding].tensor.shape[0]
    if largest >= rows:
        says = f"tokenizer.json numbers tokens up to {largest:,}, `{embedding}` has {rows:,} rows"
        yield refused("vocabulary", says, reference="the tokenizer is that of another model")


def _largest_token(path: Path) -> int | None:
    """The largest number in the vocabulary; None when there is none that could be read."""
    keys = _keys(path)
    model = keys.get("model")
    found = cast("Mapping[str, object]", model).get("vocab") if isinstance(model, dict) else None
    if isinstance(found, list):  # Unigram: pieces in the order of their numbers
        return len(cast("list[object]", found)) - 1
    numbers = cast("Mapping[str, object]", found).values() if isinstance(found, dict) else ()
    return max((n for n in numbers if isinstance(n, int)), default=None)


def chat(checkpoint: Checkpoint, spec: ModelSpec | None) -> Iterator[Comparison]:
    """A server answers no chat without a template; a base model needs none."""
    own_words = checkpoint.beside & {"tekken.json", "chat_template.jinja", "chat_template.json"}
    if spec is None or spec.task != "generate" or own_words or not checkpoint.beside & TOKENIZERS:
        return
    if "chat_template" not in _keys(checkpoint.path / "tokenizer_config.json"):
        says = "no chat template: right for a base model, else a server refuses /v1/chat/completions"
        yield remark("chat_template", says, reference="tokenizer_config.json, chat_template.jinja")


def _keys(path: Path) -> Mapping[str, object]:
    """A JSON file's keys; none when it cannot be read, which is said elsewhere."""
    try:
        small = path.is_file() and path.stat().st_size <= LARGEST_JSON
        found = json.loads(path.read_bytes()) if small else None
    except (OSError, ValueError, RecursionError):
        return {}
    return cast("Mapping[str, object]", found) if isinstance(found, dict) else {}


def _no_object(path: Path) -> str | None:
    """Why a file is no JSON object; None when it is one, or is not there."""
    try:
        if not path.is_file():
            return "is no file" if path.exists() or path.is_symlink() else None
        content = path.read_bytes() if path.stat().st_size <= LARGEST_JSON else b"{}"
        return None if isinstance(json.loads(content), dict) else "is no JSON object"
    except (OSError, ValueError, RecursionError) as error:
        return f"cannot be read: {str(error)[:120]}"


def generation(checkpoint: Checkpoint, spec: ModelSpec | None) -> Iterator[Comparison]:
    """Without generation_config.json a server takes end of text and sampling from elsewhere."""
    if spec is None or spec.task != "generate" or "generation_config.json" in checkpoint.beside:
        return
    says = "generation_config.json is missing: end-of-text tokens beside that of config.json are not known"
    yield remark("generation_config", says, reference="vLLM --generation-config auto reads it")


def size(checkpoint: Checkpoint, claims: Claims | None, claimed: tuple[int, int]) -> Iterator[Comparison]:
    """Bytes, and what became of the layers that are described as quantized: (stored, in 16 bits)."""
    stored, plain = claimed
    if not plain or claims is None or not claims.known:
        yield remark("bytes", units.show_bytes(checkpoint.size), reference="headers", got=checkpoint.size)
        return
    before = checkpoint.size - stored + plain
    ratio = checkpoint.size / before
    whole = f"{units.show_bytes(checkpoint.size)}, {ratio:.2f} of {units.show_bytes(before)}"
    says = f"{whole} with quantized layers in 16 bits; these themselves {stored / plain:.2f}"
    if stored > LARGEST_RATIO * plain:
        yield refused("ratio", f"{says}: nothing became smaller", reference="headers")
        return
    yield remark("ratio", says, reference="headers", got=ratio)


def tied(checkpoint: Checkpoint) -> Iterator[Comparison]:
    """A head that is tied to the embedding is stored once; the second copy is not read by every loader."""
    embedding = next((name for name in EMBEDDING if name in checkpoint.tensors), None)
    if checkpoint.keys.get("tie_word_embeddings") is not True or embedding is None:
        return
    if HEAD not in checkpoint.tensors:
        quantized = [n for n in checkpoint.tensors if n.startswith("lm_head.")]
        if quantized:
            says = f"`{quantized[0]}`: the head is tied to the embedding and quantized all the same"
            yield refused("tied", says, reference="engines take the embedding for the head and drop this")
        return
    one, other = (_digest(checkpoint, name) for name in (embedding, HEAD))
    waste = units.show_bytes(checkpoint.tensors[HEAD].tensor.bytes)
    if one == other:
        says = f"`{HEAD}` repeats `{embedding}`: {waste} for nothing"
        yield remark("tied", says, reference="tie_word_embeddings is true")
        return
    says = f"`{HEAD}` differs from `{embedding}`, and tie_word_embeddings is true"
    yield refused(
        "tied", says, reference="engines drop one of the two: set it to false, or leave the head out"
    )


def _digest(checkpoint: Checkpoint, name: str) -> str:
    found = hashlib.sha256()
    for piece in checkpoint.content(name):
        found.update(piece)
    return found.hexdigest()

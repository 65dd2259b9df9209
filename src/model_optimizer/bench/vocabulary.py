"""What a tokenizer.json says: which token ids ordinary text uses, and texts of an exact length."""

from pathlib import Path
from random import Random
from typing import Any, Protocol

import msgspec

from model_optimizer.core import UsageError

_TRIES = 12
_MARGIN = 20  # one part in so many, at either end of an unknown vocabulary, may be special tokens


class Encoder(Protocol):
    """Text to token ids and back, as the `tokenizers` package does it."""

    def encode(self, text: str) -> list[int]: ...

    def decode(self, ids: list[int]) -> str: ...


def tokenizer_file(place: str) -> Path:
    """A tokenizer.json, named itself or by its folder. Raises UsageError when it is not there."""
    path = Path(place)
    path = path / "tokenizer.json" if path.is_dir() else path
    if not path.is_file():
        raise UsageError(
            f"there is no tokenizer at `{place}`",
            hint=("name a tokenizer.json, or the folder of a model that has one",),
        )
    return path


class _Added(msgspec.Struct):
    id: int


class _Model(msgspec.Struct):
    vocab: dict[str, int] | list[msgspec.Raw]


class _File(msgspec.Struct):
    model: _Model
    added_tokens: list[_Added] = []


def ordinary_ids(path: Path) -> tuple[int, ...]:
    """The ids of a tokenizer.json that are not special tokens, ascending. Raises UsageError."""
    try:
        content = msgspec.json.decode(path.read_bytes(), type=_File)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"`{path}` is not a tokenizer.json", cause=(str(error),)) from error
    vocabulary = content.model.vocab
    known = vocabulary.values() if isinstance(vocabulary, dict) else range(len(vocabulary))
    ids = sorted(set(known) - {token.id for token in content.added_tokens})
    if len(ids) < 2:
        raise UsageError(f"`{path}` holds no vocabulary")
    return tuple(ids)


def likely_ids(vocab_size: int) -> tuple[int, ...]:
    """Ids of a vocabulary of which only the size is known, without the ends, where special tokens are."""
    margin = max(3, vocab_size // _MARGIN)
    if vocab_size < 4 * margin:
        raise UsageError(f"a vocabulary of {vocab_size} tokens is too small to draw prompts from")
    return tuple(range(margin, vocab_size - margin))


def encoder(path: Path) -> Encoder | None:
    """The tokenizer itself, None when the `tokenizers` package is not installed."""
    try:
        import tokenizers  # pyright: ignore[reportMissingImports]
    except ImportError:
        return None
    loaded: Any = tokenizers.Tokenizer.from_file(str(path))  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    return _Tokenizers(loaded)


class _Tokenizers:
    def __init__(self, loaded: Any) -> None:
        self._loaded = loaded
        self._loaded.no_truncation()
        self._loaded.no_padding()

    def encode(self, text: str) -> list[int]:
        return list(self._loaded.encode(text, add_special_tokens=False).ids)

    def decode(self, ids: list[int]) -> str:
        return str(self._loaded.decode(ids, skip_special_tokens=True))


def text_of(tokens: int, ids: tuple[int, ...], coder: Encoder, dice: Random) -> str:
    """Random text that encodes to exactly `tokens` tokens, or as near as a few tries come.

    Decoding random ids and encoding the text again gives another number of tokens; what is too much is
    cut off, what is missing is drawn again.
    """
    best, best_off = "", tokens
    drawn = dice.choices(ids, k=tokens)
    for _ in range(_TRIES):
        text = coder.decode(drawn)
        got = coder.encode(text)
        off = abs(len(got) - tokens)
        if off < best_off or not best:
            best, best_off = text, off
        if not off:
            break
        drawn = got[:tokens] + dice.choices(ids, k=max(0, tokens - len(got)))
    return best

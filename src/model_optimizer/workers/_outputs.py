"""What the workers that run a model for verification share: samples, tokens and the file of outputs.

Logits are large and stay in the worker. What leaves it is one safetensors file with, for each text in
the order of the samples:

    offsets         [n+1]  where the tokens of each text begin in `tokens` and `types`
    tokens, types   token ids and token types, all texts in a row

and for a language model one row for each predicted position (every token of a text but its first):

    true_logit      [p]    logit of the token that really follows
    logsumexp       [p]    of all logits, so that a log-probability is a logit minus this
    top_ids         [p,k]  the k most likely tokens, most likely first
    top_logits      [p,k]
    asked_logits    [p,k]  logits of the tokens that the reference ranks highest (candidate only)
    asked_known     [p,k]  0 where that is only an upper bound; left out when all are known
    finite          [p]    0 where a logit is NaN or infinite

and, where it was let run freely, what _outputs_free.py adds;
or for an embedding model `vectors` [n,d], for a cross-encoder `scores` [n,labels].
"""

import itertools
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

sys.path.append(str(Path(__file__).resolve().parent))
from _contract import fail

ROWS = 64
"""How many positions are reduced at once: bounds the memory beside the logits of one text."""


class Tokens(NamedTuple):
    """Token ids and types of one sample."""

    ids: np.ndarray
    types: np.ndarray


class Position(NamedTuple):
    """What is kept of every predicted position of one text."""

    true_logit: np.ndarray
    logsumexp: np.ndarray
    top_ids: np.ndarray
    top_logits: np.ndarray
    finite: np.ndarray
    asked_logits: np.ndarray | None


def read_samples(path: str) -> list[dict[str, str]]:
    """One JSON object a line: {"text": ...} or {"text": ..., "pair": ...}."""
    return [json.loads(line) for line in Path(path).read_text(encoding="utf-8").splitlines()]


def load_tokenizer(folder: Path) -> Any:
    """The tokenizer of a folder, without running any code that lies there."""
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(str(folder), trust_remote_code=False, local_files_only=True)
    except (OSError, ValueError, KeyError, TypeError) as error:
        fail(
            "tokenizer",
            f"the tokenizer of `{folder.name}` cannot be loaded",
            [first_line(error)],
            ["the folder needs tokenizer.json and tokenizer_config.json"],
        )


def tokenize(tokenizer: Any, samples: list[dict[str, str]], limit: int) -> list[Tokens]:
    """Every sample cut at `limit` tokens, special tokens as the tokenizer adds them."""
    found = []
    for number, sample in enumerate(samples, 1):
        encoded = tokenizer(sample["text"], sample.get("pair"), truncation=True, max_length=limit)
        ids = np.asarray(encoded["input_ids"], dtype=np.int32)
        if not len(ids):
            fail("texts", f"text {number} has no tokens", hint=["leave it out of the texts"])
        types = np.asarray(encoded.get("token_type_ids") or [0] * len(ids), dtype=np.int32)
        found.append(Tokens(ids, types))
    return found


def tokenize_plainly(file: Path, samples: list[dict[str, str]], limit: int) -> list[Tokens]:
    """The same by tokenizer.json alone, without what other files say of it; [] when it cannot be read."""
    from tokenizers import Tokenizer

    try:
        tokenizer = Tokenizer.from_file(str(file))
    except Exception:  # noqa: BLE001 - the library raises bare exceptions; the other way names the fault
        return []
    tokenizer.no_padding()
    tokenizer.enable_truncation(limit)
    found = []
    for sample in samples:
        encoded = tokenizer.encode(sample["text"], sample.get("pair"))
        found.append(Tokens(np.asarray(encoded.ids, np.int32), np.asarray(encoded.type_ids, np.int32)))
    return found


def first_difference(mine: list[Tokens], theirs: list[Tokens]) -> tuple[int, int | None]:
    """How many samples two tokenizers cut differently, and the first of them."""
    pairs = enumerate(itertools.zip_longest(mine, theirs))
    wrong = [i for i, (a, b) in pairs if a is None or b is None or not np.array_equal(a.ids, b.ids)]
    return len(wrong), wrong[0] if wrong else None


def reduce(logits: np.ndarray, following: np.ndarray, k: int, asked: np.ndarray | None) -> Position:
    """Logits [p,vocabulary] to what is kept of them. `asked` holds token ids [p,k] of the reference."""
    parts = [
        _reduce_rows(
            logits[start : start + ROWS],
            following[start : start + ROWS],
            k,
            None if asked is None else asked[start : start + ROWS],
        )
        for start in range(0, len(logits), ROWS)
    ]
    columns = zip(*parts, strict=True)
    whole = [None if c[0] is None else np.concatenate(c) for c in columns]
    return Position(*whole)  # pyright: ignore[reportArgumentType]


def _reduce_rows(rows: np.ndarray, following: np.ndarray, k: int, asked: np.ndarray | None) -> Position:
    finite = np.asarray(np.isfinite(rows).all(axis=1))
    rows = np.where(finite[:, None], rows, 0).astype(np.float32)
    largest = rows.max(axis=1)
    total = np.exp(rows - largest[:, None]).sum(axis=1, dtype=np.float64)
    best = np.argpartition(rows, -k, axis=1)[:, -k:]
    # Equal logits are ranked by token id, so that two exact copies of a model rank alike.
    order = np.lexsort((best, -np.take_along_axis(rows, best, axis=1)), axis=1)
    best = np.take_along_axis(best, order, axis=1)
    return Position(
        true_logit=np.take_along_axis(rows, following[:, None].astype(np.int64), axis=1)[:, 0],
        logsumexp=np.log(total) + largest,
        top_ids=best.astype(np.int32),
        top_logits=np.take_along_axis(rows, best, axis=1),
        finite=finite.astype(np.uint8),
        asked_logits=None if asked is None else np.take_along_axis(rows, asked.astype(np.int64), axis=1),
    )


def stack(positions: list[Position]) -> dict[str, np.ndarray]:
    """The rows of all texts under each other, by name; what was not asked for is left out."""
    named: dict[str, np.ndarray] = {}
    for name in Position._fields:
        parts = [getattr(position, name) for position in positions]
        if parts and parts[0] is not None:
            named[name] = np.concatenate(parts)
    return named


def save(out: str, tokens: list[Tokens], arrays: Mapping[str, np.ndarray], about: Mapping[str, Any]) -> None:
    """Write the file of outputs, whole or not at all."""
    from safetensors.numpy import save_file

    lengths = [0, *(len(t.ids) for t in tokens)]
    held = {
        "offsets": np.cumsum(lengths).astype(np.int32),
        "tokens": np.concatenate([t.ids for t in tokens]),
        "types": np.concatenate([t.types for t in tokens]),
        **arrays,
    }
    beside = Path(f"{out}.tmp")
    try:
        save_file(
            {name: np.ascontiguousarray(array) for name, array in held.items()},
            str(beside),
            metadata={"about": json.dumps(about)},
        )
        beside.replace(out)
    finally:
        beside.unlink(missing_ok=True)


class Outputs:
    """A file of outputs that another worker wrote, read back."""

    def __init__(self, path: str) -> None:
        from safetensors import safe_open

        with safe_open(path, framework="numpy") as file:
            self.arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            self.about: dict[str, Any] = json.loads(file.metadata()["about"])

    def tokens(self) -> list[Tokens]:
        ends = self.arrays["offsets"]
        ids, types = self.arrays["tokens"], self.arrays["types"]
        return [Tokens(ids[a:b], types[a:b]) for a, b in itertools.pairwise(ends)]

    def asked(self, text: int) -> np.ndarray:
        """The token ids [p,k] that this model ranks highest in one text."""
        ends = self.arrays["offsets"]
        first, last = (int(ends[i]) - i for i in (text, text + 1))
        return self.arrays["top_ids"][first:last]


def first_line(error: BaseException) -> str:
    text = str(error).strip()
    return f"{type(error).__name__}: {text.splitlines()[0][:300]}" if text else type(error).__name__

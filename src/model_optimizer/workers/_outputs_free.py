"""Language models that go on by themselves: greedy continuations of the beginnings of texts.

The file of outputs (_outputs.py) gets one row for each text that is long enough:

    free_text  [m]    which text it continues
    free_ids   [m,n]  the tokens that the model chose, each the most likely one after its own earlier choices
    free_gaps  [m,n]  nats between that token and the next best one (0 where a server does not say)

An end of text is a token like any other, so that all rows have the same length. Texts run in batches of
beginnings of one length: no padding is needed.
"""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

sys.path.append(str(Path(__file__).resolve().parent))
from _contract import progress
from _outputs import Outputs, Tokens

BATCH = 16

Step = Callable[[np.ndarray], np.ndarray]
"""Takes the tokens [b,t] that come next and gives the logits [b,vocabulary] behind the last of them."""


class Free(NamedTuple):
    """Tokens of a beginning, and of its continuation."""

    prompt: int
    tokens: int


def asked(request: dict[str, Any]) -> Free | None:
    """What the request says: `free` = {prompt, tokens}; None where nothing shall run freely."""
    found = request.get("free")
    return Free(found["prompt"], found["tokens"]) if found else None


def rows_of(tokens: Sequence[Tokens], free: Free) -> list[int]:
    """The texts that are long enough."""
    return [number for number, text in enumerate(tokens) if len(text.ids) >= free.prompt]


def affordable(tokens: Sequence[Tokens], free: Free) -> int:
    """How many texts a model without a cache continues for what it costs to read all texts once."""
    each = free.tokens * (free.prompt + free.tokens / 2)
    return max(1, int(sum(len(text.ids) for text in tokens) / each))


def rows_like(reference: Outputs) -> list[int]:
    """The texts that the reference continued."""
    found = reference.arrays.get("free_text")
    return [] if found is None else [int(number) for number in found]


def run(
    begin: Callable[[], Step], tokens: Sequence[Tokens], rows: Sequence[int], free: Free
) -> dict[str, np.ndarray]:
    """The three arrays; {} where no text is long enough. `begin` gives the step of a new batch."""
    ids: list[np.ndarray] = []
    gaps: list[np.ndarray] = []
    for start in range(0, len(rows), BATCH):
        progress("free-running continuations", start / len(rows))
        batch = np.stack([tokens[row].ids[: free.prompt] for row in rows[start : start + BATCH]])
        found = _continue(begin(), batch.astype(np.int64), free.tokens)
        ids.append(found[0])
        gaps.append(found[1])
    if not ids:
        return {}
    return arrays(rows, np.concatenate(ids), np.concatenate(gaps))


def arrays(rows: Sequence[int], ids: np.ndarray, gaps: np.ndarray) -> dict[str, np.ndarray]:
    return {
        "free_text": np.asarray(rows, np.int32),
        "free_ids": ids.astype(np.int32),
        "free_gaps": gaps.astype(np.float32),
    }


def _continue(step: Step, prompt: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    chosen: list[np.ndarray] = []
    gaps: list[np.ndarray] = []
    following = prompt
    for _ in range(count):
        logits = np.asarray(step(following), np.float32)
        best = logits.argmax(axis=1)  # of equal ones the first, as everywhere
        second = np.partition(logits, -2, axis=1)[:, -2:]
        chosen.append(best)
        gaps.append(second[:, 1] - second[:, 0])
        following = best[:, None].astype(np.int64)
    return np.stack(chosen, axis=1), np.stack(gaps, axis=1)

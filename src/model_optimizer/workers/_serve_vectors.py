"""Token ids to one vector a text: in ONNX Runtime, or in PyTorch as the plain baseline."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
from _checkpoint import most_tokens, read_config, read_json
from _contract import fail
from _sentence import read_sentence
from _serve_batches import groups
from _serve_session import Session


class Encoded(NamedTuple):
    """Token ids and type ids of one text."""

    ids: list[int]
    types: list[int]


class Vectors(Protocol):
    """A loaded model. `version` names the libraries behind it."""

    version: str

    def run(self, ids: np.ndarray, mask: np.ndarray, types: np.ndarray) -> np.ndarray:
        """[b,t] token ids, mask and type ids to [b,d] float32, pooled and normalised as the model asks."""
        ...


def embed(model: Vectors, texts: Sequence[Encoded], batch_tokens: int) -> list[np.ndarray]:
    """One float32 vector for each text, in their order; texts of about equal length share a batch."""
    found: list[Any] = [None] * len(texts)
    for group in groups([len(text.ids) for text in texts], batch_tokens):
        rows = model.run(*_padded([texts[i] for i in group]))
        for position, row in zip(group, rows, strict=True):
            found[position] = row
    return found


def _padded(texts: list[Encoded]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Padded on the right with zeros, which the mask hides."""
    shape = (len(texts), max(len(text.ids) for text in texts))
    ids, mask, types = (np.zeros(shape, dtype=np.int64) for _ in range(3))
    for row, text in enumerate(texts):
        count = len(text.ids)
        ids[row, :count], types[row, :count], mask[row, :count] = text.ids, text.types, 1
    return ids, mask, types


class GraphVectors:
    """A graph that pools and normalises: `answer` is its output, `sentence_embedding` [b,d], or `scores`
    [b,labels] of a cross-encoder."""

    def __init__(self, session: Session, answer: str) -> None:
        self._session, self._answer = session, answer
        if answer not in session.outputs:
            fail("graph-output", f"the graph has no output {answer}", [", ".join(session.outputs)])
        self.version = session.version

    def run(self, ids: np.ndarray, mask: np.ndarray, types: np.ndarray) -> np.ndarray:
        short = self._session.longer("input_ids", ids.shape[1]) - ids.shape[1]
        ids, mask, types = (np.pad(array, ((0, 0), (0, short))) for array in (ids, mask, types))
        positions = np.broadcast_to(np.arange(ids.shape[1], dtype=np.int64), ids.shape)
        given = {"input_ids": ids, "attention_mask": mask, "token_type_ids": types, "position_ids": positions}
        fed = {name: array for name, array in given.items() if name in self._session.inputs}
        return self._session.run([self._answer], fed)[0].astype(np.float32, copy=False)


class TorchVectors:
    """A checkpoint folder of safetensors, pooled as the folder says."""

    def __init__(self, folder: Path, *, dtype: str, threads: int | None) -> None:
        import inspect

        import torch
        import transformers
        from _serve_torch import load

        if threads:
            torch.set_num_threads(threads)
        self._pooling, self._normalize, _note = read_sentence(folder, read_config(folder))
        self._model = load(folder, "AutoModel", dtype, unused=r"(^|\.)pooler\.")
        self._accepted = set(inspect.signature(self._model.forward).parameters)
        self.version = f"torch {torch.__version__}, transformers {transformers.__version__}"

    def run(self, ids: np.ndarray, mask: np.ndarray, types: np.ndarray) -> np.ndarray:
        import torch

        given: dict[str, Any] = {
            "input_ids": torch.from_numpy(ids),
            "attention_mask": torch.from_numpy(mask),
            "token_type_ids": torch.from_numpy(types),
            "use_cache": False,
        }
        with torch.inference_mode():
            out = self._model(**{k: v for k, v in given.items() if k in self._accepted})
            rows = pool(out.last_hidden_state.float().numpy(), mask, self._pooling)
        return (
            rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12) if self._normalize else rows
        )


def pool(hidden: np.ndarray, mask: np.ndarray, way: str) -> np.ndarray:
    """[b,t,d] to [b,d]; texts begin at the left, so that the last token is the last of the mask."""
    if way == "cls":
        return hidden[:, 0]
    if way == "lasttoken":
        return hidden[np.arange(len(hidden)), mask.sum(axis=1) - 1]
    seen = mask[:, :, None].astype(bool)
    return (hidden * seen).sum(axis=1) / mask.sum(axis=1, keepdims=True)


def longest(folder: Path, asked: int | None) -> int:
    """The most tokens of a text: what was asked, at most what the folder and the engine in it take."""
    about = folder / "mopt.json"
    facts = read_json(about) if about.is_file() else {}
    said = facts.get("max_tokens")
    limit = said if isinstance(said, int) else most_tokens(folder, read_config(folder))
    built = [profile.get("sequence", [limit])[-1] for profile in facts.get("engine", {}).get("profiles", ())]
    return min(limit, asked or limit, max(built, default=limit))

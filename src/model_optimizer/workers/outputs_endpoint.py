"""Ask a running server over the texts that a reference has run over.

Request: `url` (http://127.0.0.1:PORT), `served_name` (None for the server's first model), `task` (generate,
embed), `samples` (JSONL), `at` (the reference's outputs), `out` (file of outputs, see _outputs.py), `top_k`,
`free` (None, or the lengths that _outputs_free.py asks for), `dtype` and `quantized`: what the server was
told to compute in, since no interface tells.

The reference's token ids go in, so that only the model is compared; where the server says how it would cut
the texts, that is compared too. A few requests are in flight at once, as they are when it serves: batches are
part of what is verified.

A server gives log-probabilities of a few tokens instead of all logits. `logsumexp` is 0 then. A token of the
reference that the server does not list gets the least of its most likely ones, which is an upper bound, and 0
in `asked_known`.
"""

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

sys.path.append(str(Path(__file__).resolve().parent))
import _endpoint
import _outputs
import _outputs_free
import numpy as np
from _contract import fail, main, progress
from _endpoint import NotFinite, Row, Server

AT_ONCE = 4
BATCH = 8
"""Texts of one request for vectors."""

KEY = "MOPT_API_KEY"

R = TypeVar("R")


def job(request: dict[str, Any]) -> dict[str, Any]:
    if request["task"] not in ("generate", "embed"):
        fail("task", f"a server for the task `{request['task']}` cannot be verified yet")
    reference = _outputs.Outputs(request["at"])
    tokens = reference.tokens()
    server = Server(request["url"], key=os.environ.get(KEY))
    card = server.model(request.get("served_name"))
    if request["task"] == "generate":
        arrays = _predictions(server, card["id"], tokens, reference, request["top_k"])
        arrays |= _run_freely(server, card["id"], tokens, request, reference)
    else:
        arrays = {"vectors": _vectors(server, card["id"], tokens)}
    about = {
        "engine": str(card.get("engine") or card.get("owned_by") or "unknown")[:100],
        "dtype": request["dtype"],
        "quantized": request["quantized"],
        "normalised": request["task"] == "generate",
        "token_ids": _own_tokens(server, card["id"], request["samples"], reference),
    }
    _outputs.save(request["out"], tokens, arrays, about)
    return {"texts": len(tokens), "tokens": sum(len(text.ids) for text in tokens)}


def _predictions(
    server: Server, model: str, tokens: list[_outputs.Tokens], reference: _outputs.Outputs, k: int
) -> dict[str, np.ndarray]:
    def ask(number: int) -> dict[str, np.ndarray]:
        ids = tokens[number].ids.tolist()
        try:
            rows = _endpoint.rows(server.ask("/v1/completions", _endpoint.question(model, ids)), ids)
        except NotFinite:
            rows = [_endpoint.NAN] * (len(ids) - 1)
        return columns(rows, reference.asked(number), k)

    parts = list(_at_once(ask, range(len(tokens))))
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _run_freely(
    server: Server,
    model: str,
    tokens: list[_outputs.Tokens],
    request: dict[str, Any],
    reference: _outputs.Outputs,
) -> dict[str, np.ndarray]:
    """Continuations of the texts that the reference continued; {} from a server that gives no token ids."""
    free, rows = _outputs_free.asked(request), _outputs_free.rows_like(reference)
    if free is None or not rows:
        return {}

    def ask(at: int) -> list[int] | None:
        ids = tokens[rows[at]].ids[: free.prompt].tolist()
        answer = server.ask("/v1/completions", _endpoint.continuation(model, ids, free.tokens))
        return _endpoint.continued(answer, free.tokens)

    if ask(0) is None:
        return {}
    found = list(_at_once(ask, range(len(rows))))
    if None in found:
        fail("endpoint-answer", "the server gives token ids of some answers only")
    return _outputs_free.arrays(rows, np.array(found, np.int32), np.zeros((len(rows), free.tokens)))


def columns(rows: Sequence[Row], asked: np.ndarray, k: int) -> dict[str, np.ndarray]:
    """The rows of one text as _outputs.py names them; `asked` [p,k] are the reference's token ids."""
    shape = (len(rows), k)
    found = {
        "true_logit": np.array([row.true for row in rows], np.float32),
        "logsumexp": np.zeros(len(rows)),
        "top_ids": np.zeros(shape, np.int32),
        "top_logits": np.zeros(shape, np.float32),
        "finite": np.array([bool(row.best) for row in rows], np.uint8),
        "asked_logits": np.zeros(shape, np.float32),
        "asked_known": np.zeros(shape, np.uint8),
    }
    for at, (row, wanted) in enumerate(zip(rows, asked.tolist(), strict=True)):
        if not row.best:
            continue
        if len(row.best) < k:
            fail("endpoint-answer", f"the server lists {len(row.best)} tokens where {k} are wanted")
        found["top_ids"][at] = [token for token, _ in row.best[:k]]
        found["top_logits"][at] = [value for _, value in row.best[:k]]
        bound = row.best[-1][1]
        found["asked_logits"][at] = [row.known.get(token, bound) for token in wanted]
        found["asked_known"][at] = [token in row.known for token in wanted]
    return found


def _vectors(server: Server, model: str, tokens: list[_outputs.Tokens]) -> np.ndarray:
    def ask(start: int) -> list[list[float]]:
        ids = [text.ids.tolist() for text in tokens[start : start + BATCH]]
        answer = server.ask("/v1/embeddings", {"model": model, "input": ids, "encoding_format": "float"})
        return _endpoint.vectors(answer, len(ids))

    found = [v for batch in _at_once(ask, range(0, len(tokens), BATCH)) for v in batch]
    if len({len(vector) for vector in found}) != 1:
        fail("endpoint-answer", "the server gives vectors of different lengths")
    return np.array(found, np.float32)


def _at_once(ask: Callable[[int], R], items: range) -> Iterator[R]:
    """The answers in order, a few requests in flight; after a failure no further one is sent."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for number, answer in enumerate(pool.map(ask, items), 1):
            progress("candidate outputs, asked over HTTP", number / len(items))
            yield answer


def _own_tokens(
    server: Server, model: str, samples: str, reference: _outputs.Outputs
) -> dict[str, Any] | None:
    """How the server's own tokenizer cuts the same texts; None when it does not say."""
    texts = [sample["text"] for sample in _outputs.read_samples(samples)]
    longest = reference.about["max_tokens"]
    different = []
    for number, (text, wanted) in enumerate(zip(texts, reference.tokens(), strict=True)):
        answer = server.ask_if_there("/tokenize", {"model": model, "prompt": text})
        own = answer.get("tokens") if isinstance(answer, dict) else None
        if not isinstance(own, list):
            return None
        if not _endpoint.same_tokens(own, wanted.ids.tolist(), longest):
            different.append(number)
    return {"checked": len(texts), "different": len(different), "first": different[0] if different else None}


if __name__ == "__main__":
    main(job)

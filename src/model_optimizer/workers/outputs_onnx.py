"""Run an ONNX model in ONNX Runtime over the texts that a reference has run over.

Request: `model` (folder or .onnx file), `task` (generate, embed, rerank), `samples` (JSONL), `at` (the
reference's outputs), `out` (file of outputs, see _outputs.py), `top_k`, `free` (None, or the lengths that
_outputs_free.py asks for).

The reference's token ids go in, so that only the model is compared; where the artefact has a tokenizer of
its own, its ids are compared too. Texts of an embedding model or a cross-encoder run in padded batches, as a
server runs them: a mask that is wrong shows against the reference, which has no padding.
"""

import json
import sys
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

sys.path.append(str(Path(__file__).resolve().parent))
import _outputs
import _outputs_free
import numpy as np
from _contract import fail, main, progress

BATCH = 8
NUMBERS = {
    "tensor(int64)": np.int64,
    "tensor(int32)": np.int32,
    "tensor(float)": np.float32,
    "tensor(float16)": np.float16,
    "tensor(bool)": np.bool_,
}
PAST = "past_key_values."
ANSWERS = {"generate": "logits", "embed": "sentence_embedding", "rerank": "scores"}


class Batch(NamedTuple):
    """Padded texts: ids, token types and mask, each [b,t]."""

    ids: np.ndarray
    types: np.ndarray
    mask: np.ndarray


def job(request: dict[str, Any]) -> dict[str, Any]:
    import onnxruntime

    reference = _outputs.Outputs(request["at"])
    tokens = reference.tokens()
    path = find_model(Path(request["model"]))
    progress("load the candidate")
    dtype, quantized = precision(path)
    session = open_session(path)
    answer = ANSWERS[request["task"]]
    _check_answer(session, path, answer)
    if request["task"] == "generate":
        arrays = _run_tokens(session, path, tokens, request["top_k"], reference)
        arrays |= _run_freely(session, path, tokens, request, reference)
    else:
        rows = _run_batches(session, path, tokens, answer, reference.about)
        arrays = {"vectors" if request["task"] == "embed" else "scores": rows}
    about = {
        "engine": f"onnxruntime {onnxruntime.__version__}",
        "dtype": dtype,
        "quantized": quantized,
        "token_ids": _own_tokens(path.parent, request, reference),
    }
    _outputs.save(request["out"], tokens, arrays, about)
    return {"texts": len(tokens), "tokens": int(np.sum([len(t.ids) for t in tokens]))}


def find_model(path: Path) -> Path:
    """The graph of an artefact: the file itself, the one that genai_config.json names, or model.onnx."""
    if path.is_file():
        return path
    config = genai_config(path)
    named = config.get("model", {}).get("decoder", {}).get("filename", "model.onnx")
    found = path / Path(named).name
    if not found.is_file():
        fail("no-onnx-file", f"`{path}` holds no {found.name}", hint=["name the folder that convert made"])
    return found


def genai_config(folder: Path) -> dict[str, Any]:
    path = folder / "genai_config.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}


def precision(path: Path) -> tuple[str, bool]:
    """What the graph itself says: the narrowest float type of its weights, and whether it is quantized."""
    import onnx

    try:
        model = onnx.load(str(path), load_external_data=False)
    except Exception as error:  # noqa: BLE001 - protobuf raises kinds of its own
        _unreadable(path, error)
    nodes = [*model.graph.node, *(node for function in model.functions for node in function.node)]
    quantized = any(
        word in node.op_type for node in nodes for word in ("Quant", "QLinear", "NBits", "Integer")
    )
    kinds = {tensor.data_type for tensor in model.graph.initializer}
    for name, kind in (("bfloat16", onnx.TensorProto.BFLOAT16), ("float16", onnx.TensorProto.FLOAT16)):
        if kind in kinds:
            return name, quantized
    return "float32", quantized


def open_session(path: Path) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    # Threads that wait by spinning take the cores from whoever else works on this machine.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    try:
        return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # noqa: BLE001 - the library's errors share no base of their own
        _unreadable(path, error)


def _unreadable(path: Path, error: Exception) -> NoReturn:
    fail(
        "onnx-unreadable",
        f"ONNX Runtime cannot load `{path.parent.name}/{path.name}`",
        [_outputs.first_line(error)],
        ["check that the .onnx.data file lies beside it, and make the artefact again"],
    )


def _check_answer(session: Any, path: Path, answer: str) -> None:
    names = [output.name for output in session.get_outputs()]
    if answer not in names:
        fail(
            "no-output",
            f"`{path.name}` has no output `{answer}`",
            [f"its outputs are {', '.join(names[:8])}"],
            ["make the artefact with `mopt convert` or `mopt quantize`, which name it so"],
        )


def feed(session: Any, folder: Path, batch: Batch) -> dict[str, np.ndarray]:
    """A value for each input of the graph; the cache of earlier tokens is empty."""
    positions = np.maximum(batch.mask.cumsum(axis=1) - 1, 0)
    known = {
        "input_ids": batch.ids,
        "attention_mask": batch.mask,
        "token_type_ids": batch.types,
        "position_ids": positions,
    }
    inputs = {}
    for wanted in session.get_inputs():
        if wanted.type not in NUMBERS:
            fail("unknown-input", f"the graph asks for `{wanted.name}` as {wanted.type}")
        kind = NUMBERS[wanted.type]
        if wanted.name in known:
            inputs[wanted.name] = known[wanted.name].astype(kind)
        elif wanted.name.startswith(PAST):
            inputs[wanted.name] = np.zeros(_empty_cache(wanted.shape, len(batch.ids), folder), dtype=kind)
        else:
            fail("unknown-input", f"the graph asks for `{wanted.name}`, which this worker cannot give")
    return inputs


def _empty_cache(shape: list[int | str], batch: int, folder: Path) -> tuple[int, int, int, int]:
    """[batch, heads, 0, size of a head]; the graph may leave the size to genai_config.json."""
    heads, size = shape[1], shape[3]
    decoder = genai_config(folder).get("model", {}).get("decoder", {})
    heads = heads if isinstance(heads, int) else decoder.get("num_key_value_heads")
    size = size if isinstance(size, int) else decoder.get("head_size")
    if not isinstance(heads, int) or not isinstance(size, int):
        fail("unknown-input", "neither the graph nor genai_config.json says how large a cache entry is")
    return (batch, heads, 0, size)


def _run_tokens(
    session: Any, path: Path, tokens: list[_outputs.Tokens], k: int, reference: _outputs.Outputs
) -> dict[str, np.ndarray]:
    positions = []
    for number, text in enumerate(tokens):
        progress("candidate outputs", number / len(tokens))
        logits = _call(session, path, pad([text], 0, "right"), "logits")[0]
        asked = reference.asked(number)
        _check_logits(logits, len(text.ids), int(reference.arrays["top_ids"].max(initial=0)))
        positions.append(_outputs.reduce(logits[:-1], text.ids[1:], k, asked))
    return _outputs.stack(positions)


def _run_freely(
    session: Any,
    path: Path,
    tokens: list[_outputs.Tokens],
    request: dict[str, Any],
    reference: _outputs.Outputs,
) -> dict[str, np.ndarray]:
    """Continuations of the texts that the reference continued; a graph without a cache takes fewer."""
    free = _outputs_free.asked(request)
    if free is None:
        return {}
    rows = _outputs_free.rows_like(reference)
    if not any(value.name.startswith(PAST) for value in session.get_inputs()):
        rows = rows[: _outputs_free.affordable(tokens, free)]
    return _outputs_free.run(lambda: _step(session, path), tokens, rows, free)


def _step(session: Any, path: Path) -> _outputs_free.Step:
    """With a cache only what is new is read, without one all tokens from the first."""
    seen: list[np.ndarray] = []
    past: dict[str, np.ndarray] = {}
    names = [value.name for value in session.get_inputs() if value.name.startswith(PAST)]
    wanted = ["logits", *(f"present{name.removeprefix('past_key_values')}" for name in names)]

    def step(ids: np.ndarray) -> np.ndarray:
        seen.append(ids)
        whole = np.concatenate(seen, axis=1)
        batch = Batch(whole, np.zeros_like(whole), np.ones_like(whole))
        inputs = feed(session, path.parent, batch)
        if names:
            new = slice(whole.shape[1] - ids.shape[1], None)
            for name in ("input_ids", "position_ids"):
                if name in inputs:
                    inputs[name] = inputs[name][:, new]
            inputs |= past
        found = _answers(session, path, wanted, inputs)
        past.update(zip(names, found[1:], strict=True))
        return found[0][:, -1]

    return step


def _check_logits(logits: np.ndarray, length: int, largest_id: int) -> None:
    if len(logits) != length:
        fail(
            "last-logits-only",
            f"the graph gives logits for {len(logits)} of {length} positions",
            hint=["export it with the logits of all positions; teacher forcing reads them all"],
        )
    if logits.shape[1] <= largest_id:
        fail(
            "vocabulary",
            f"the candidate knows {logits.shape[1]} tokens, the reference ranks token {largest_id}",
            hint=["they are not the same model: name the checkpoint that the candidate was made from"],
        )


def _run_batches(
    session: Any, path: Path, tokens: list[_outputs.Tokens], answer: str, about: dict[str, Any]
) -> np.ndarray:
    rows = []
    for start in range(0, len(tokens), BATCH):
        progress("candidate outputs", start / len(tokens))
        batch = pad(tokens[start : start + BATCH], about["pad_id"], about["padding_side"])
        found = _call(session, path, batch, answer)
        rows.append(found.reshape(len(batch.ids), -1).astype(np.float32))
    return np.concatenate(rows)


def _call(session: Any, path: Path, batch: Batch, answer: str) -> np.ndarray:
    return _answers(session, path, [answer], feed(session, path.parent, batch))[0]


def _answers(session: Any, path: Path, names: list[str], inputs: dict[str, np.ndarray]) -> list[np.ndarray]:
    try:
        return session.run(names, inputs)
    except Exception as error:  # noqa: BLE001 - the library's errors share no base of their own
        size = "x".join(str(n) for n in inputs["input_ids"].shape)
        fail("onnx-run", f"ONNX Runtime failed on {size} tokens", [_outputs.first_line(error)])


def pad(texts: list[_outputs.Tokens], pad_id: int, side: str) -> Batch:
    """Texts of different lengths as one batch; padding has mask 0."""
    width = max(len(text.ids) for text in texts)
    ids = np.full((len(texts), width), pad_id, dtype=np.int64)
    types, mask = np.zeros_like(ids), np.zeros_like(ids)
    for row, text in enumerate(texts):
        place = slice(width - len(text.ids), width) if side == "left" else slice(0, len(text.ids))
        ids[row, place], types[row, place], mask[row, place] = text.ids, text.types, 1
    return Batch(ids, types, mask)


def _own_tokens(folder: Path, request: dict[str, Any], reference: _outputs.Outputs) -> dict[str, Any] | None:
    """How the artefact's own tokenizer cuts the same texts; None when it has none.

    Loading the library that knows every tokenizer costs seconds and hundreds of megabytes, so it is only
    asked when the file alone says otherwise.
    """
    file = folder / "tokenizer.json"
    if not file.is_file():
        return None
    tokens, longest = reference.tokens(), reference.about["max_tokens"]
    samples = _outputs.read_samples(request["samples"])
    different, first = _outputs.first_difference(_outputs.tokenize_plainly(file, samples, longest), tokens)
    if different:
        own = _outputs.tokenize(_outputs.load_tokenizer(folder), samples, longest)
        different, first = _outputs.first_difference(own, tokens)
    return {"checked": len(tokens), "different": different, "first": first}


if __name__ == "__main__":
    main(job)

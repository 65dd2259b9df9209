"""Export an embedding model or cross-encoder from PyTorch to ONNX, and prove that it computes the same.

Request: {source, out, task: embed|rerank, opset}. `out` is an existing empty folder that gets model.onnx
and model.onnx.data, the tokenizer's files, config.json and mopt.json. Result: {versions, notes, parity}.
Pooling and normalisation are part of the graph. Every answer of the graph, in padded batches of shapes
other than the example's, is compared with that of the original model to the same input alone, unpadded,
and pooled by other code.
"""

import gc
import importlib.metadata
import json
import random
import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parent))
from _checkpoint import (
    TOKENIZER_FILES,
    check_weights,
    copy_files,
    most_tokens,
    read_config,
    require_loaded,
    require_tokenizer,
)
from _contract import brief, fail, main, progress
from _onnx_export import export_graph
from _sentence import read_sentence

TOLERANCE = 2e-4
EXAMPLE_WIDTH = 16
PACKAGES = ("torch", "transformers", "onnx", "onnxscript", "onnxruntime")
OUTPUT = {"embed": "sentence_embedding", "rerank": "scores"}


@dataclass(frozen=True, kw_only=True)
class Case:
    """A batch for the comparison: the length of each row, and where its padding goes."""

    lengths: tuple[int, ...]
    left: bool = False

    def __str__(self) -> str:
        return f"{len(self.lengths)} x {max(self.lengths)}{' padded left' if self.left else ''}"


def job(request: dict[str, Any]) -> dict[str, Any]:
    warnings.filterwarnings("ignore")
    source, out, task = Path(request["source"]), Path(request["out"]), request["task"]
    progress("reading the checkpoint", 0.0)
    config = read_config(source)
    check_weights(source)
    require_tokenizer(source)
    pooling, normalize, note = read_sentence(source, config) if task == "embed" else (None, False, None)
    tokens = most_tokens(source, config)

    model, settings = load(source, task)
    inputs = input_names(model, settings)
    progress("computing what the original answers", 0.1)
    cases = make_cases(tokens, left=pooling == "lasttoken")
    dice = random.Random(0)
    rows = [[make_row(length, settings, dice) for length in case.lengths] for case in cases]
    wanted = [[answer_alone(model, row, inputs, pooling, normalize) for row in batch] for batch in rows]

    if cases[-1].left and not pads_left(
        wrap(model, pooling, normalize), cases[-1], rows[-1], wanted[-1], inputs, settings
    ):
        cases.pop()
        left = "padded on the left PyTorch answers otherwise itself: pad on the right"
        note = f"{note}; {left}" if note else left

    progress("exporting to ONNX", 0.2)
    path = out / "model.onnx"
    export(wrap(model, pooling, normalize), inputs, path, tokens, request["opset"], OUTPUT[task])
    del model
    gc.collect()

    progress("comparing with the original", 0.85)
    parity = compare(path, cases, rows, wanted, inputs, settings)
    copy_files(source, out, ("config.json", *TOKENIZER_FILES))
    save_tokenizer(source, out)
    facts = describe(path, task, pooling, normalize, tokens, settings, parity)
    (out / "mopt.json").write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")
    return {
        "versions": {name: importlib.metadata.version(name) for name in PACKAGES},
        "parity": parity,
        "notes": [
            f"same as PyTorch in {len(cases)} batches ({', '.join(map(str, cases))}): "
            f"largest difference {parity['largest_difference']:.1e} of the largest component",
            *([note] if note else []),
        ],
    }


def load(source: Path, task: str) -> tuple[Any, Any]:
    """The model in float32 and its configuration; refuses what would be loaded with random weights."""
    import torch
    import transformers

    kind = transformers.AutoModel if task == "embed" else transformers.AutoModelForSequenceClassification
    try:
        model, loaded = kind.from_pretrained(
            source,
            dtype=torch.float32,
            use_safetensors=True,
            trust_remote_code=False,
            attn_implementation="eager",
            local_files_only=True,
            output_loading_info=True,
        )
    except (ValueError, KeyError, NotImplementedError, ImportError, AttributeError) as error:
        fail(
            "unsupported-architecture",
            f"transformers {transformers.__version__} cannot load this architecture for `{task}`",
            [brief(error)],
            ["models that bring their own code are refused"],
        )
    require_loaded(list(loaded["missing_keys"]), unused=r"(^|\.)pooler\." if task == "embed" else r"^$")
    return model.eval(), model.config


def input_names(model: Any, settings: Any) -> tuple[str, ...]:
    """What the graph takes. Segment numbers are an input where the model tells segments apart."""
    import inspect

    takes = inspect.signature(model.forward).parameters
    names = ["input_ids", "attention_mask"]
    if "token_type_ids" in takes and (getattr(settings, "type_vocab_size", 0) or 0) > 1:
        names.append("token_type_ids")
    return tuple(names)


def pool_mean(hidden: Any, mask: Any) -> Any:
    import torch

    kept = torch.where(mask.unsqueeze(-1) > 0, hidden, torch.zeros((), dtype=hidden.dtype))
    return kept.sum(1) / mask.sum(1, keepdim=True).clamp(min=1).to(hidden.dtype)


def pool_cls(hidden: Any, mask: Any) -> Any:
    return hidden[:, 0]


def pool_lasttoken(hidden: Any, mask: Any) -> Any:
    """The last token that is not padding, on whichever side the padding is. No branches, no loops."""
    import torch

    last = (torch.arange(mask.shape[1]) * mask).argmax(1)
    return hidden.gather(1, last.view(-1, 1, 1).expand(-1, 1, hidden.shape[-1])).squeeze(1)


POOL: dict[str, Callable[[Any, Any], Any]] = {
    "mean": pool_mean,
    "cls": pool_cls,
    "lasttoken": pool_lasttoken,
}


def wrap(model: Any, pooling: str | None, normalize: bool) -> Any:
    """The module that is exported: token ids in, vectors or scores out."""
    import torch

    class Wrapped(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, input_ids: Any, attention_mask: Any, token_type_ids: Any = None) -> Any:
            segments = {} if token_type_ids is None else {"token_type_ids": token_type_ids}
            found = self.model(input_ids=input_ids, attention_mask=attention_mask, **segments)
            if pooling is None:
                return found.logits
            vectors = POOL[pooling](found.last_hidden_state, attention_mask)
            return torch.nn.functional.normalize(vectors, dim=-1) if normalize else vectors

    return Wrapped().eval()


def export(
    module: Any,
    inputs: Sequence[str],
    path: Path,
    tokens: int,
    opset: int,
    output: str,
) -> None:
    """Write model.onnx with a free batch size and length. Only metadata that names modules is kept."""
    import onnx
    import torch

    width = min(EXAMPLE_WIDTH, tokens)
    example = {name: torch.ones(2, width, dtype=torch.long) for name in inputs}
    example["attention_mask"][1, width // 2 :] = 0
    if "token_type_ids" in example:
        example["token_type_ids"][:, : width // 2] = 0
    # Named dimensions: if the exporter wanted to fix one to the example's size, it would fail instead.
    free = {0: torch.export.Dim("batch"), 1: torch.export.Dim("sequence", max=tokens)}
    shapes = dict.fromkeys(inputs, free)
    export_graph(module, path, example, shapes, opset=opset, inputs=inputs, outputs=[output])
    onnx.checker.check_model(str(path))


def make_cases(tokens: int, *, left: bool) -> list[Case]:
    """Batches unlike the example: one row, several padded, long, and padded left where that is used."""
    long = min(tokens, 160)
    cases = [
        Case(lengths=(min(7, tokens),)),
        Case(lengths=tuple(min(n, tokens) for n in (33, 12, 5))),
        Case(lengths=(max(1, long // 2), long)),
    ]
    if left:
        cases.append(Case(lengths=tuple(min(n, tokens) for n in (29, 8, 3)), left=True))
    return cases


def make_row(length: int, settings: Any, dice: random.Random) -> dict[str, list[int]]:
    """Token ids that are not padding, and segments of which the second is not empty."""
    padding = getattr(settings, "pad_token_id", None)
    ids = [dice.randrange(settings.vocab_size) for _ in range(length)]
    ids = [(i + 1) % settings.vocab_size if i == padding else i for i in ids]
    return {"input_ids": ids, "token_type_ids": [int(i >= (length + 1) // 2) for i in range(length)]}


def answer_alone(
    model: Any, row: dict[str, list[int]], inputs: Sequence[str], pooling: str | None, normalize: bool
) -> Any:
    """What the original answers to one input without padding, pooled in NumPy."""
    import numpy
    import torch

    fed = {name: torch.tensor([row[name]]) for name in inputs if name in row}
    fed["attention_mask"] = torch.ones_like(fed["input_ids"])
    with torch.no_grad():
        found = model(**fed)
    if pooling is None:
        return found.logits[0].numpy()
    hidden = found.last_hidden_state[0].numpy()
    vector = {"mean": hidden.mean(axis=0), "cls": hidden[0], "lasttoken": hidden[-1]}[pooling]
    return vector / numpy.linalg.norm(vector) if normalize else vector


def pads_left(
    module: Any,
    case: Case,
    batch: Sequence[dict[str, list[int]]],
    wanted: Sequence[Any],
    inputs: Sequence[str],
    settings: Any,
) -> bool:
    """Whether the original answers the same to a batch that is padded on the left: positions that count from
    the first place, as GPT-2's do, are others there.
    """
    import numpy
    import torch

    fed = {name: torch.from_numpy(array) for name, array in pad(batch, case, inputs, settings).items()}
    with torch.no_grad():
        got = module(**fed).numpy()
    expected = numpy.stack(list(wanted))
    return bool(numpy.abs(got - expected).max() <= TOLERANCE * (float(numpy.abs(expected).max()) or 1.0))


def compare(
    path: Path,
    cases: Sequence[Case],
    rows: Sequence[Sequence[dict[str, list[int]]]],
    wanted: Sequence[Sequence[Any]],
    inputs: Sequence[str],
    settings: Any,
) -> dict[str, Any]:
    """Run the graph on every batch. Fails the export when an answer is not the original's."""
    import numpy

    session = open_session(path)
    worst = 0.0
    for case, batch, right in zip(cases, rows, wanted, strict=False):
        got = session.run(None, pad(batch, case, inputs, settings))[0]
        expected = numpy.stack(list(right))
        scale = float(numpy.abs(expected).max()) or 1.0
        found = (
            float(numpy.abs(got - expected).max()) / scale if got.shape == expected.shape else float("inf")
        )
        if not found <= TOLERANCE:
            fail(
                "export-differs",
                "the exported graph does not compute what the model computes",
                [
                    f"batch of {case}: the largest difference is {found:.2g} of the largest component, "
                    f"{TOLERANCE:g} is allowed"
                ],
                ["the model may need a newer PyTorch to be exported; please report it"],
            )
        worst = max(worst, found)
    return {"batches": [str(case) for case in cases], "largest_difference": worst, "allowed": TOLERANCE}


def open_session(path: Path) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 2
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def pad(
    batch: Sequence[dict[str, list[int]]], case: Case, inputs: Sequence[str], settings: Any
) -> dict[str, Any]:
    import numpy

    width = max(case.lengths)
    filler = getattr(settings, "pad_token_id", None) or 0
    fed = {name: numpy.zeros((len(batch), width), dtype=numpy.int64) for name in inputs}
    fed["input_ids"][:] = filler
    for number, row in enumerate(batch):
        length = len(row["input_ids"])
        place = slice(width - length, width) if case.left else slice(0, length)
        fed["attention_mask"][number, place] = 1
        for name in inputs:
            if name in row:
                fed[name][number, place] = row[name]
    return fed


def save_tokenizer(source: Path, out: Path) -> None:
    """A server reads tokenizer.json; where the model has only the older files, it is made from them."""
    if (out / "tokenizer.json").is_file():
        return
    import transformers

    try:
        transformers.AutoTokenizer.from_pretrained(
            source, trust_remote_code=False, local_files_only=True
        ).backend_tokenizer.save(str(out / "tokenizer.json"))
    except (ValueError, OSError, AttributeError, ImportError) as error:
        fail(
            "no-tokenizer",
            "the model's tokenizer cannot be turned into a tokenizer.json",
            [brief(error)],
        )


def describe(
    path: Path,
    task: str,
    pooling: str | None,
    normalize: bool,
    tokens: int,
    settings: Any,
    parity: dict[str, Any],
) -> dict[str, Any]:
    """What a server has to know of the artefact: the content of mopt.json."""
    session = open_session(path)

    def shape(values: Any) -> list[dict[str, Any]]:
        return [{"name": v.name, "type": v.type, "shape": list(v.shape)} for v in values]

    facts: dict[str, Any] = {
        "schema": "onnx_folder/1",
        "task": task,
        "scheme": "fp32",
        "max_tokens": tokens,
        "pad_token_id": getattr(settings, "pad_token_id", None),
        "inputs": shape(session.get_inputs()),
        "outputs": shape(session.get_outputs()),
        "parity": parity,
    }
    if task == "embed":
        return {**facts, "pooling": pooling, "normalize": normalize}
    labels = int(getattr(settings, "num_labels", 1))
    return {**facts, "labels": labels, "activation": "sigmoid" if labels == 1 else "none"}


if __name__ == "__main__":
    main(job)

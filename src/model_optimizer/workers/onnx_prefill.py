"""Export the prefill of a decoder to ONNX: all tokens of padded prompts in, the logits of every place out.

Request: {source, out, opset}. Without a KV cache (`use_cache` off): this is for scoring, for measuring a
network and for building it, not for generating tokens. Positions are an input: the exporter would otherwise
fuse rotary embeddings with tables for a batch of one. `out` gets model.onnx, its data, the tokenizer's files,
config.json and mopt.json. Every answer is compared with PyTorch's, padded on either side. Result: {versions,
notes, parity}.
"""

import gc
import importlib.metadata
import json
import random
import sys
import warnings
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
)
from _contract import brief, fail, main, progress
from _onnx_export import export_graph, require_unique
from _onnx_feeds import open_session

TOLERANCE = 2e-4
PACKAGES = ("torch", "transformers", "onnx", "onnxscript", "onnxruntime")
INPUTS = ("input_ids", "attention_mask", "position_ids")
OUTPUT = "logits"
# Rows of different lengths; True where the padding is at the left. None like the example of 2 x 16.
CASES = (((7,), False), ((33, 12, 5), False), ((29, 8, 3), True), ((40, 80), False))


def job(request: dict[str, Any]) -> dict[str, Any]:
    warnings.filterwarnings("ignore")
    source, out = Path(request["source"]), Path(request["out"])
    progress("reading the checkpoint", 0.0)
    config = read_config(source)
    check_weights(source)
    longest = most_tokens(source, config)
    model = load(source)
    vocabulary = model.config.vocab_size
    progress("exporting to ONNX", 0.2)
    path = out / "model.onnx"
    wrapped = wrap(model)
    export(wrapped, path, longest, request["opset"])
    progress("comparing with the original", 0.8)
    parity = compare(path, wrapped, vocabulary, longest)
    del model, wrapped
    gc.collect()
    session = open_session(path)
    shape = ["batch", "sequence"]
    facts = {
        "schema": "onnx_folder/1",
        "task": "generate",
        "kind": "prefill",
        "scheme": "fp32",
        "max_tokens": longest,
        "inputs": [{"name": name, "type": "tensor(int64)", "shape": shape} for name in INPUTS],
        "outputs": [{"name": v.name, "type": v.type, "shape": list(v.shape)} for v in session.get_outputs()],
        "parity": parity,
    }
    copy_files(source, out, ("config.json", *TOKENIZER_FILES))
    (out / "mopt.json").write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")
    worst = parity["largest_difference"]
    return {
        "versions": {name: importlib.metadata.version(name) for name in PACKAGES},
        "parity": parity,
        "notes": [
            f"same as PyTorch in {len(parity['batches'])} batches ({', '.join(parity['batches'])}): largest "
            f"difference {worst:.1e} of the largest logit",
            "prefill only, without a KV cache",
        ],
    }


def load(source: Path) -> Any:
    import torch
    import transformers

    try:
        model, loaded = transformers.AutoModelForCausalLM.from_pretrained(
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
            f"transformers {transformers.__version__} cannot load this architecture as a decoder",
            [brief(error)],
            ["models that bring their own code are refused"],
        )
    require_loaded(
        list(loaded["missing_keys"]), unused=r"^lm_head\." if model.config.tie_word_embeddings else r"^$"
    )
    return model.eval()


def wrap(model: Any) -> Any:
    import torch

    class Prefill(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, input_ids: Any, attention_mask: Any, position_ids: Any) -> Any:
            return self.model(
                input_ids=input_ids,
                attention_mask=attention_mask,
                position_ids=position_ids,
                use_cache=False,
            ).logits

    return Prefill().eval()


def export(module: Any, path: Path, longest: int, opset: int) -> None:
    import torch

    example = {name: torch.ones(2, 16, dtype=torch.long) for name in INPUTS}
    example["attention_mask"][1, 8:] = 0
    example["position_ids"] = torch.arange(16).repeat(2, 1)
    free = {0: torch.export.Dim("batch"), 1: torch.export.Dim("sequence", max=longest)}
    shapes = dict.fromkeys(INPUTS, free)
    export_graph(module, path, example, shapes, opset=opset, inputs=INPUTS, outputs=[OUTPUT])
    require_unique(path, dict.fromkeys(INPUTS, ("batch", "sequence")))


def compare(path: Path, module: Any, vocabulary: int, longest: int) -> dict[str, Any]:
    """Places that are padding answer anything, so only the others count."""
    import numpy
    import torch

    session, dice, worst, said = open_session(path), random.Random(0), 0.0, []
    for lengths, left in CASES:
        rows = [min(length, longest) for length in lengths]
        feed = batch(rows, left, vocabulary, dice)
        with torch.no_grad():
            right = module(**{name: torch.from_numpy(array) for name, array in feed.items()}).numpy()
        got = session.run([OUTPUT], feed)[0]
        seen = feed["attention_mask"].astype(bool)
        found = float(numpy.abs(got - right)[seen].max() / numpy.abs(right[seen]).max())
        name = f"{len(rows)} x {max(rows)}{' padded left' if left else ''}"
        if not found <= TOLERANCE:
            fail(
                "export-differs",
                "the exported graph does not compute what the model computes",
                [f"batch of {name}: {found:.2g} of the largest logit, {TOLERANCE:g} is allowed"],
                ["the model may need a newer PyTorch to be exported; please report it"],
            )
        worst = max(worst, found)
        said.append(name)
    return {"batches": said, "largest_difference": worst, "allowed": TOLERANCE}


def batch(rows: list[int], left: bool, vocabulary: int, dice: random.Random) -> dict[str, Any]:
    import numpy

    width = max(rows)
    feed = {name: numpy.zeros((len(rows), width), dtype=numpy.int64) for name in INPUTS}
    for number, length in enumerate(rows):
        place = slice(width - length, width) if left else slice(0, length)
        feed["input_ids"][number, place] = [dice.randrange(vocabulary) for _ in range(length)]
        feed["attention_mask"][number, place] = 1
        feed["position_ids"][number, place] = range(length)
    return feed


if __name__ == "__main__":
    main(job)

"""Where the error of a quantized checkpoint comes from: layer by layer, and which layers matter most.

Request: `reference` and `model` (folders), `samples` (JSONL), `max_tokens`, and `sensitivity` (whether single
layers are swapped). Result:

    layers       [{name, error}]  of the hidden states behind each layer: the norm of the difference over
                                  the norm of the reference's, over all tokens of all texts
    sensitivity  [{name, parameters, kl}]  nats a token of the whole model when this layer alone is the
                                  candidate's and all others are the reference's, the worst first
    unit         `matrix` or `block`: what was swapped

A tool that moves scales between neighbours (AWQ, SmoothQuant) changes norms too; one matrix alone then means
nothing, and whole blocks are swapped.
"""

import sys
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parent))
import _outputs
import outputs_torch
import quality_torch
from _checkpoint import check_weights, read_config, read_json, require_tokenizer
from _contract import fail, main, progress

SAME = 1e-6


def job(request: dict[str, Any]) -> dict[str, Any]:
    source, folder = Path(request["reference"]), Path(request["model"])
    read_config(source)
    for place in (source, folder):
        check_weights(place)
        require_tokenizer(place)
    import torch

    progress("load both models in float32")
    reference = outputs_torch.load(source, "generate", "")
    candidate = quality_torch.load(folder, read_json(folder / "config.json"), "generate")
    tokenizer = _outputs.load_tokenizer(source)
    texts = _outputs.tokenize(tokenizer, _outputs.read_samples(request["samples"]), request["max_tokens"])
    ids = [torch.from_numpy(text.ids.astype("int64"))[None] for text in texts if len(text.ids) > 1]
    if not ids:
        fail("texts", "no text has two tokens")
    with torch.inference_mode():
        found: dict[str, Any] = {"layers": _layers(reference, candidate, ids, torch)}
        if request.get("sensitivity"):
            names = _changed(reference, candidate, torch)
            by_block = _moved(reference, candidate, names, torch)
            found["unit"] = "block" if by_block else "matrix"
            units = _blocks(names) if by_block else names
            found["sensitivity"] = _sensitivity(reference, candidate, ids, units)
    return {**found, "texts": len(ids), "tokens": sum(i.shape[1] for i in ids)}


def _layers(reference: Any, candidate: Any, ids: list[Any], torch: Any) -> list[dict[str, Any]]:
    difference: list[float] = []
    size: list[float] = []
    for number, text in enumerate(ids):
        progress("hidden states of both models", number / len(ids))
        pair = [model(input_ids=text, output_hidden_states=True, use_cache=False).hidden_states
                for model in (reference, candidate)]  # fmt: skip
        if not difference:
            difference, size = [0.0] * len(pair[0]), [0.0] * len(pair[0])
        for at, (a, b) in enumerate(zip(*pair, strict=True)):
            difference[at] += float(torch.sum((a - b).double() ** 2))
            size[at] += float(torch.sum(a.double() ** 2))
    names = ["embedding", *(f"layer {n}" for n in range(len(difference) - 2)), "last layer and norm"]
    return [
        {"name": name, "error": (d / s) ** 0.5 if s else None}
        for name, d, s in zip(names, difference, size, strict=True)
    ]


def _moved(reference: Any, candidate: Any, changed: list[str], torch: Any) -> bool:
    """Whether anything beside these matrices differs."""
    mine = dict(candidate.named_parameters())
    return any(
        name.rpartition(".")[0] not in changed and name in mine and _differ(parameter, mine[name], torch)
        for name, parameter in reference.named_parameters()
    )


def _differ(one: Any, other: Any, torch: Any) -> bool:
    return not torch.allclose(one, other.to(one.dtype), rtol=SAME, atol=SAME)


def _changed(reference: Any, candidate: Any, torch: Any) -> list[str]:
    """Names of the quantized matrices; of a candidate in plain numbers those of linear layers that differ."""
    quantized = [name for name, module in candidate.named_modules() if _is_quantized(module)]
    if quantized:
        return quantized
    theirs = dict(reference.named_modules())
    return [
        name
        for name, module in candidate.named_modules()
        if isinstance(module, torch.nn.Linear)
        and "." in name
        and name in theirs
        and module.weight.shape == theirs[name].weight.shape
        and _differ(theirs[name].weight, module.weight, torch)
    ]


def _is_quantized(module: Any) -> bool:
    scheme = getattr(module, "quantization_scheme", None)
    return getattr(scheme, "weights", None) is not None or hasattr(module, "algorithm")


def _blocks(names: list[str]) -> list[str]:
    """The blocks (`model.layers.3`) that hold these matrices."""
    return list(dict.fromkeys(block for name in names if (block := _block(name)) is not None))


def _block(name: str) -> str | None:
    """`model.layers.3` of `model.layers.3.mlp.up_proj`."""
    parts = name.split(".")
    at = next((i for i, part in enumerate(parts) if part.isdecimal()), None)
    return None if at is None else ".".join(parts[: at + 1])


def _sensitivity(reference: Any, candidate: Any, ids: list[Any], names: list[str]) -> list[dict[str, Any]]:
    wanted = [reference(input_ids=text, use_cache=False).logits.log_softmax(-1) for text in ids]
    tokens = sum(text.shape[1] for text in ids)
    found = []
    for number, name in enumerate(names):
        progress(f"only {name} changed", number / len(names))
        parent, _, leaf = name.rpartition(".")
        home = reference.get_submodule(parent)
        kept, other = reference.get_submodule(name), candidate.get_submodule(name)
        _put(home, leaf, other)
        try:
            total = 0.0
            for text, rows in zip(ids, wanted, strict=True):
                got = reference(input_ids=text, use_cache=False).logits.log_softmax(-1)
                total += float((rows.exp() * (rows - got)).sum())
        finally:
            _put(home, leaf, kept)
        size = sum(p.numel() for p in kept.parameters() if p.ndim > 1)
        found.append({"name": name, "parameters": size, "kl": max(0.0, total / tokens)})
    return sorted(found, key=lambda entry: -entry["kl"])


def _put(home: Any, leaf: str, module: Any) -> None:
    if leaf.isdecimal():
        home[int(leaf)] = module
    else:
        setattr(home, leaf, module)


if __name__ == "__main__":
    main(job)

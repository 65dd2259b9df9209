"""Run a checkpoint of llm-compressor or ModelOpt in PyTorch, rounding activations as it asks for.

Request and result are those of outputs_torch.py; `at` (the reference's outputs) must be there. Weights are
expanded when they are first used; what is computed beside them is in `dtype`.
"""

import sys
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parent))
import _outputs
import _quality_modelopt
import outputs_torch
from _checkpoint import check_weights, most_tokens, read_json, require_tokenizer
from _contract import blame, fail, main, progress


def job(request: dict[str, Any]) -> dict[str, Any]:
    folder = Path(request["model"])
    if not request.get("at"):
        fail(
            "reference-quantized",
            f"`{folder.name}` is quantized itself, so it cannot be what others are compared with",
            hint=["name the original with --against"],
        )
    config = read_json(folder / "config.json")
    check_weights(folder)
    require_tokenizer(folder)
    pooling = outputs_torch.pooling_of(folder, config) if request["task"] == "embed" else ""
    import torch
    import transformers

    samples = _outputs.read_samples(request["samples"])
    reference = _outputs.Outputs(request["at"])
    progress("load the quantized checkpoint in PyTorch")
    model = load(folder, config, request["task"], pooling)
    mine = _outputs.tokenize(
        _outputs.load_tokenizer(folder), samples, min(request["max_tokens"], most_tokens(folder, config))
    )
    tokens = reference.tokens()
    with torch.inference_mode():
        arrays = outputs_torch.run(model, tokens, request, pooling, reference)
    different, first = _outputs.first_difference(mine, tokens)
    about = {
        "engine": f"torch {torch.__version__}, transformers {transformers.__version__}",
        "dtype": "float32",
        "quantized": True,
        "token_ids": {"checked": len(tokens), "different": different, "first": first},
    }
    _outputs.save(request["out"], tokens, arrays, about)
    return {"texts": len(tokens), "tokens": sum(len(text.ids) for text in tokens)}


def load(folder: Path, config: dict[str, Any], task: str, pooling: str = "") -> Any:
    """The model in float32, quantized weights expanded; its linear layers still round what comes in."""
    said = _quality_modelopt.described(folder, config)
    if said is not None:
        return _quality_modelopt.load(folder, said, task)
    if not config.get("quantization_config"):  # plain numbers: there is nothing to expand
        return outputs_torch.load(folder, task, pooling, "float32")
    method = config["quantization_config"].get("quant_method")
    if method != "compressed-tensors":
        fail(
            "not-in-pytorch",
            f"PyTorch does not expand a checkpoint of `{method}` here",
            hint=["serve it, and pass the server's URL instead of the folder"],
        )
    import torch

    model = outputs_torch.load(folder, task, pooling, "float32", plain=True)
    try:
        _expand(model, torch)
    except (RuntimeError, ValueError, KeyError, AttributeError, TypeError) as error:
        blame(error, "broken-checkpoint", f"the quantized weights of `{folder.name}` cannot be expanded")
    return model


def _expand(model: Any, torch: Any) -> None:
    """The library expands at the first call, FP4 to bfloat16: a call that may fail is made for this alone."""
    with torch.no_grad():
        try:
            model(input_ids=torch.zeros((1, 2), dtype=torch.int64))
        except RuntimeError as error:
            if "same dtype" not in str(error):
                raise
    for parameter in model.parameters():
        if parameter.is_floating_point():
            parameter.data = parameter.data.float()
    with torch.no_grad():
        model(input_ids=torch.zeros((1, 2), dtype=torch.int64))


if __name__ == "__main__":
    main(job)

"""Quantize a checkpoint with calibration data, by llm-compressor's `oneshot`.

Request: {source, out, scheme, task, method, preset, group_size, symmetric, exclude, calibration,
search_steps, statistics, kv, work}. `method` is awq, gptq, smoothquant (SmoothQuant, then GPTQ) or static
(ranges of activations, and with `kv` those of the KV cache), `preset` a scheme of compressed-tensors;
_quantize_data.py says what `calibration` is. `statistics` of GPTQ: {dampening: share of the mean diagonal
that is added before a Hessian is inverted, longest_token, tokens_per_column (_quantize_hessian.py)}.
`symmetric` None: zero points, which lose less, but none for experts, whose zero points vLLM 0.19 refuses
(vLLM issue 39980; 0.32 reads them).

Finished layers lie in the folder `work` until the end, so that a job that was killed goes on behind the last.
Works on a GPU when torch sees one, layer by layer, else on the CPU. Result: {versions, notes, weights}.
"""

import importlib.metadata
import sys
from math import inf
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parent))
from _checkpoint import require_loaded
from _contract import blame, fail, main, progress
from _quantize_data import Calibration
from _quantize_hessian import few_tokens, limited_tokens
from _quantize_model import begin, require_finite, settle
from _quantize_names import restore_names
from _quantize_parts import in_parts
from _quantize_smoothing import awq, smoothquant
from _quantize_source import Source, ignored, parameters, reasons, write_about

PACKAGES = ("llmcompressor", "compressed-tensors", "torch", "transformers")
UNUSED = r"(^|\.)(pooler|position_ids|lm_head)(\.|$)"
SMOOTHING = 0.8
"""Share of the difficulty that moves from activations to weights: what llm-compressor's examples take."""


def job(request: dict[str, Any]) -> dict[str, Any]:
    source, data = begin(request, "llm-compressor")
    few = few_notes(source, request, data)
    model = load(source)
    where = place(model)
    compress(model, source, request, data)
    progress("writing the folder", 0.95)
    out = Path(request["out"])
    model.save_pretrained(out, save_compressed=True)
    restore_names(out, source)
    settle(out, source)
    weights = {
        "quantized": len(source.quantized),
        "parameters": parameters(source.quantized),
        "method": request["method"],
        "group_size": source.group_size,
        "symmetric": symmetry(source, request) is not False,
    }
    write_about(out, request, {"weights": weights, "calibration": data.digest})
    return {
        "versions": {name: importlib.metadata.version(name) for name in PACKAGES},
        "weights": weights,
        "notes": [
            f"{len(source.quantized)} weight matrices, {request['method']}, {where}",
            *data.notes,
            *few,
            *symmetry_notes(source, request),
            *smoothing_notes(source, request),
            *reasons(source),
            *source.notes,
        ],
    }


def few_notes(source: Source, request: dict[str, Any], data: Calibration) -> list[str]:
    """What the record says of too few tokens; said at once too where the texts were shorter than planned."""
    statistics, asked = request.get("statistics"), request["calibration"]
    if not statistics:
        return []
    columns, least = [t.shape[-1] for t in source.quantized], statistics["tokens_per_column"]
    found = few_tokens(columns, data.tokens, least)
    if not few_tokens(columns, int(asked["count"]) * int(asked["length"]), least):
        for note in found:
            progress(note)
    return found


def load(source: Source) -> Any:
    """The model as it is stored, experts apart from one another; a tensor that is missing is an error."""
    import transformers
    from llmcompressor.modeling.moe.linearize import linearize_moe

    name = str(source.config["architectures"][0])
    kind = getattr(transformers, name, None)
    if kind is None or not issubclass(kind, transformers.PreTrainedModel):
        fail("unknown-architecture", f"transformers {transformers.__version__} has no `{name}`")
    try:
        model, info = kind.from_pretrained(source.folder, dtype="auto", output_loading_info=True)
        require_loaded(sorted(info["missing_keys"]), unused=UNUSED)
        # Stacked experts come apart after loading: the library's way to load them apart needs torchvision.
        linearize_moe(model)
    except Exception as error:  # noqa: BLE001 - a library's failure, in one line
        blame(error, "broken-checkpoint", "transformers cannot load the checkpoint")
    require_finite(model)
    return model.eval()


def place(model: Any) -> str:
    """Where the work is done, in words. llm-compressor itself moves one layer after the other to a GPU."""
    import torch

    if torch.accelerator.is_available():
        return f"on {torch.accelerator.current_accelerator()}, layer by layer"
    from llmcompressor.pipelines import cache

    # Without an accelerator there is no memory to pin, and torch refuses to.
    cache.IntermediatesCache.pin_memory = lambda self, *_args, **_named: None  # type: ignore[method-assign]
    return f"on the CPU ({torch.get_num_threads()} threads), which takes many times longer than a GPU"


def compress(model: Any, source: Source, request: dict[str, Any], data: Calibration) -> None:
    from llmcompressor import oneshot
    from torch.utils.data import DataLoader

    rows = [_row(ids) for ids in data.ids]
    loader = DataLoader(rows, batch_size=None, shuffle=False)  # type: ignore[arg-type]
    longest = request["statistics"]["longest_token"] if "statistics" in request else inf
    try:
        with in_parts(model, Path(request["work"])), limited_tokens(longest):
            oneshot(
                model=model,
                recipe=recipe(source, request),
                dataset=loader,
                pipeline="sequential" if is_decoder(source) else "basic",
                num_calibration_samples=len(rows),
                shuffle_calibration_samples=False,
                processor=None,
                moe_calibrate_all_experts=True,
            )
    except Exception as error:  # noqa: BLE001 - a library's failure, in one line
        blame(error, "quantization-failed", f"llm-compressor failed at `{request['method']}`")


def is_decoder(source: Source) -> bool:
    """Whether it can be calibrated layer by layer: language models, and what is made from them."""
    if str(source.config["architectures"][0]).endswith(("ForCausalLM", "LMHeadModel")):
        return True
    return any("layernorm" in tensor.name and "input" in tensor.name for tensor in source.tensors)


def _row(ids: tuple[int, ...]) -> dict[str, Any]:
    import torch

    tokens = torch.tensor([ids])
    return {"input_ids": tokens, "attention_mask": torch.ones_like(tokens)}


def recipe(source: Source, request: dict[str, Any]) -> list[Any]:
    """llm-compressor's modifiers for a method."""
    from llmcompressor.modifiers.gptq import GPTQModifier
    from llmcompressor.modifiers.quantization import QuantizationModifier

    common = {"config_groups": {"group_0": scheme(source, request)}, "ignore": ignored(source)}
    match request["method"]:
        case "awq":
            return [awq(source, int(request["search_steps"])), QuantizationModifier(**common)]
        case "gptq":
            dampening = request["statistics"]["dampening"]
            return [GPTQModifier(actorder="static", dampening_frac=dampening, **common)]
        case "smoothquant":
            smooth = smoothquant(source, SMOOTHING)
            dampening = request["statistics"]["dampening"]
            return [*smooth, GPTQModifier(actorder=None, dampening_frac=dampening, **common)]
        case "static":
            cache = KV_SCALES if request.get("kv") else None
            return [QuantizationModifier(kv_cache_scheme=cache, **common)]
        case other:
            raise AssertionError(other)


KV_SCALES = {"num_bits": 8, "type": "float", "symmetric": True, "strategy": "tensor", "dynamic": False}


def scheme(source: Source, request: dict[str, Any]) -> Any:
    """A preset with the group size and symmetry that were asked for."""
    from compressed_tensors.quantization import preset_name_to_scheme

    found = preset_name_to_scheme(request["preset"], ["Linear"])
    if source.group_size and found.weights.group_size:
        found.weights.group_size = source.group_size
    symmetric = symmetry(source, request)
    if symmetric is not None:
        found.weights.symmetric = symmetric
    return found


def symmetry(source: Source, request: dict[str, Any]) -> bool | None:
    """Without zero points? None leaves it to the preset."""
    if "symmetric" not in request:
        return None
    asked = request["symmetric"]
    return has_experts(source) if asked is None else bool(asked)


def has_experts(source: Source) -> bool:
    return any(".experts." in tensor.name for tensor in source.quantized)


def symmetry_notes(source: Source, request: dict[str, Any]) -> list[str]:
    if request.get("symmetric", True) is not None or not has_experts(source):
        return []
    return [
        "no zero points, since not every vLLM reads those of experts: --asymmetric makes them, and loses less"
    ]


def smoothing_notes(source: Source, request: dict[str, Any]) -> list[str]:
    if request["method"] != "smoothquant" or smoothquant(source, SMOOTHING):
        return []
    return ["GPTQ alone: no norm before the layers is known that could take scales of activations"]


if __name__ == "__main__":
    main(job)

"""A checkpoint of NVIDIA ModelOpt in plain torch: its weights in float32, its activations rounded as it says.

Weights are FP8 with a scale for all or for each row, or NVFP4. A layer is what its own tensors make it; words
of the description that are not known here are refused, so that nothing is expanded wrongly.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import _fp4
from _checkpoint import read_json, require_loaded
from _contract import blame, fail

SIDECAR = "hf_quant_config.json"
SCALES = ("weight_scale", "weight_scale_2", "input_scale")
LARGEST_FP8 = _fp4.LARGEST_FP8
SCALE = ".weight_scale"
HEAD, NOTHING = r"(^|\.)lm_head(\.|$)", r"(?!)"

Tensors = dict[str, Any]
Rounding = Callable[[Any], Any]


def described(folder: Path, config: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """What ModelOpt says of the folder, in config.json or beside it; None when another tool made it."""
    said = config.get("quantization_config")
    if said is None and (folder / SIDECAR).is_file():
        said = {"quant_method": "modelopt", **read_json(folder / SIDECAR).get("quantization", {})}
    return said if str((said or {}).get("quant_method")).startswith("modelopt") else None


def load(folder: Path, said: Mapping[str, Any], task: str) -> Any:
    """The language model. Every quantized layer has its word in `algorithm`."""
    if task != "generate":
        fail("not-in-pytorch", "of ModelOpt's checkpoints, PyTorch expands those of language models here")
    algorithms(said)
    import transformers

    try:
        tensors = _read(folder)
        names = [name.removesuffix(SCALE) for name in tensors if name.endswith(SCALE)]
        roundings = {name: _expand(name, tensors) for name in names}
        config = transformers.AutoConfig.from_pretrained(str(folder), local_files_only=True)
        vars(config).pop("quantization_config", None)
        # Without a folder only the class itself, no Auto class, takes tensors.
        model, info = getattr(transformers, config.architectures[0]).from_pretrained(
            None,
            config=config,
            state_dict={name: tensor.float() for name, tensor in tensors.items()},
            dtype="float32",
            attn_implementation="eager",
            output_loading_info=True,
        )
        for name, rounding in roundings.items():
            module = model.get_submodule(name)
            module.algorithm = rounding.__name__
            module.register_forward_pre_hook(_before(rounding))
    except (OSError, ValueError, RuntimeError, KeyError, AttributeError, TypeError) as error:
        blame(error, "broken-checkpoint", f"the quantized weights of `{folder.name}` cannot be expanded")
    require_loaded(sorted(info["missing_keys"]), unused=HEAD if config.tie_word_embeddings else NOTHING)
    return model.eval()


KNOWN = ("FP8", "FP8_PER_CHANNEL_PER_TOKEN", "NVFP4")


def algorithms(said: Mapping[str, Any]) -> set[str]:
    """The words for layers, all of them known; of the cache none, since nothing rounds it here."""
    layers = said.get("quantized_layers") or {}
    words = {str(layer.get("quant_algo")).upper() for layer in layers.values()}
    found = words or {str(said.get("quant_algo")).upper()}
    cache = said.get("kv_cache_quant_algo") or said.get("kv_cache_scheme")
    other = sorted(found - set(KNOWN)) or (["a quantized KV cache"] if cache else [])
    if other:
        fail(
            "not-in-pytorch",
            f"PyTorch does not expand a checkpoint of ModelOpt with {', '.join(other)} here",
            hint=[
                f"it does for {', '.join(KNOWN)} and a mixture of them",
                "serve it with vLLM on a GPU, and pass the server's URL instead of the folder",
            ],
        )
    return found


def _read(folder: Path) -> Tensors:
    from safetensors.torch import load_file

    return {name: t for file in sorted(folder.glob("*.safetensors")) for name, t in load_file(file).items()}


def _expand(name: str, tensors: Tensors) -> Rounding:
    """Put the layer's weight in float32 in place of its parts; answers what rounds that layer's input."""
    weight = tensors[f"{name}.weight"]
    scale, whole, coming = (tensors.pop(f"{name}.{part}", None) for part in SCALES)
    if whole is not None:
        tensors[f"{name}.weight"] = _fp4.unpacked(weight, scale, whole)
        return _nvfp4(coming)
    tensors[f"{name}.weight"] = weight.float() * scale.float().reshape(-1, 1)
    return _fp8(coming)


def _nvfp4(whole: Any) -> Rounding:
    def nvfp4(values: Any) -> Any:
        return values if whole is None else _fp4.rounded(values, whole)

    return nvfp4


def _fp8(scale: Any) -> Rounding:
    """With a scale that was calibrated, or one for each token."""
    import torch

    def fp8(values: Any) -> Any:
        by = values.abs().amax(-1, keepdim=True) / LARGEST_FP8 if scale is None else scale
        by = by.clamp(min=torch.finfo(torch.float32).tiny)
        return (values / by).clamp(-LARGEST_FP8, LARGEST_FP8).to(torch.float8_e4m3fn).float() * by

    return fp8


def _before(rounding: Rounding) -> Callable[[Any, tuple[Any, ...]], tuple[Any, ...]]:
    return lambda _module, given: (rounding(given[0]), *given[1:])

"""What a checkpoint says of its own quantization, in our words.

Names of methods and keys are those of transformers 5.24, compressed-tensors and NVIDIA ModelOpt 0.47.
"""

from collections.abc import Callable, Mapping
from typing import cast

from model_optimizer.core import Quantization

Keys = Mapping[str, object]

# What transformers keeps in 16 bits when an MXFP4 config does not say (gpt-oss quantizes experts alone).
MXFP4_KEPT = ("model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head")


def read(config: Keys, sidecar: Keys | None = None) -> Quantization | None:
    """From `quantization_config` (or its older names), else from ModelOpt's hf_quant_config.json."""
    text = config.get("text_config")
    inner = cast("Keys", text) if isinstance(text, dict) else {}
    for keys in (config, inner):
        for name in ("quantization_config", "compression_config"):
            found = keys.get(name)
            if found:  # whatever else a description is than keys, it says that there is one
                return _of(cast("Keys", found)) if isinstance(found, dict) else Quantization(method="unknown")
    return _modelopt(sidecar) if sidecar else None


def _of(keys: Keys) -> Quantization:
    method = _word(keys, "quant_method") or ""
    if not method:
        method = (
            "modelopt"
            if "quant_algo" in keys
            else "compressed-tensors"
            if "config_groups" in keys
            else "bitsandbytes"
            if "load_in_4bit" in keys or "load_in_8bit" in keys
            else "unknown"
        )
    if method.startswith("modelopt"):
        return _modelopt(keys)
    known = READERS.get(method)
    if known:
        return known(keys)
    return Quantization(
        method=method,
        weight_bits=_whole(keys, "bits", "w_bit"),
        group_size=_group(keys, "group_size", "q_group_size"),
        excluded=_excluded(keys),
    )


def _awq(keys: Keys) -> Quantization:
    bits = _whole(keys, "bits", "w_bit") or 4
    return Quantization(
        method="awq", scheme="awq_int4" if bits == 4 else None, weight_bits=bits, activation_bits=16,
        group_size=_group(keys, "group_size", "q_group_size"), excluded=_excluded(keys),
        zero_points=_flag(keys.get("zero_point")),
    )  # fmt: skip


def _gptq(keys: Keys) -> Quantization:
    bits = _whole(keys, "bits") or 4
    return Quantization(
        method=_word(keys, "quant_method") or "gptq", scheme={4: "gptq_int4", 8: "int8_weight"}.get(bits),
        weight_bits=bits, activation_bits=16, group_size=_group(keys, "group_size"), excluded=_excluded(keys),
        zero_points=_opposite(keys.get("sym")),
    )  # fmt: skip


def _fp8(keys: Keys) -> Quantization:
    block = keys.get("weight_block_size")
    static = keys.get("activation_scheme") == "static"
    if isinstance(block, list) and block:
        scheme, group = "fp8_block", block[-1] if isinstance(block[-1], int) else None
    else:
        scheme, group = "fp8_static" if static else "fp8", 0
    return Quantization(
        method=_word(keys, "quant_method") or "fp8",
        scheme=scheme,
        weight_bits=8,
        activation_bits=8,
        group_size=group,
        excluded=_excluded(keys),
    )


def _mxfp4(keys: Keys) -> Quantization:
    return Quantization(
        method="mxfp4", scheme="mxfp4", weight_bits=4, activation_bits=16, group_size=32,
        excluded=_excluded(keys) or MXFP4_KEPT,
    )  # fmt: skip


def _bitsandbytes(keys: Keys) -> Quantization:
    bits = 4 if keys.get("load_in_4bit") is True else 8 if keys.get("load_in_8bit") is True else None
    return Quantization(
        method="bitsandbytes",
        weight_bits=bits,
        activation_bits=16,
        group_size=64 if bits == 4 else 0 if bits else None,
        excluded=_excluded(keys),
    )


def _compressed_tensors(keys: Keys) -> Quantization:
    groups = keys.get("config_groups")
    found = [g for g in groups.values() if isinstance(g, dict)] if isinstance(groups, dict) else []
    kinds = [_of_group(cast("Keys", group)) for group in found]
    kv = keys.get("kv_cache_scheme")
    kv_bits = _whole(cast("Keys", kv), "num_bits") if isinstance(kv, dict) else None
    first = kinds[0] if kinds and all(kind == kinds[0] for kind in kinds) else (None, None, None, None)
    scheme, weight, activation, group = first
    zero_points = {_zero_points(cast("Keys", group)) for group in found}
    return Quantization(
        method="compressed-tensors",
        scheme=scheme,
        weight_bits=weight,
        activation_bits=activation,
        group_size=group,
        excluded=_excluded(keys),
        kv_bits=kv_bits,
        zero_points=zero_points.pop() if len(zero_points) == 1 else None,
    )


def _of_group(group: Keys) -> tuple[str | None, int | None, int | None, int | None]:
    """(scheme, weight bits, activation bits, group size) of one group of layers."""
    raw_weights, raw_inputs = group.get("weights"), group.get("input_activations")
    if not isinstance(raw_weights, dict):
        return None, None, None, None
    weights = cast("Keys", raw_weights)
    inputs = cast("Keys", raw_inputs) if isinstance(raw_inputs, dict) else None
    bits, number, strategy = _whole(weights, "num_bits"), _word(weights, "type"), _word(weights, "strategy")
    size = _group(weights, "group_size")
    if strategy in ("channel", "tensor"):
        size = 0
    if strategy == "block":
        block = weights.get("block_structure")
        size = block[-1] if isinstance(block, list) and block and isinstance(block[-1], int) else 128
    activation = (_whole(inputs, "num_bits") or 16) if inputs is not None else 16
    return _scheme(bits, number, strategy, weights, inputs, size), bits, activation, size


def _zero_points(group: Keys) -> bool | None:
    weights = group.get("weights")
    return _opposite(cast("Keys", weights).get("symmetric")) if isinstance(weights, dict) else None


def _scheme(
    bits: int | None,
    number: str | None,
    strategy: str | None,
    weights: Keys,
    inputs: Keys | None,
    size: int | None,
) -> str | None:
    acting = None if inputs is None else (_word(inputs, "type"), _whole(inputs, "num_bits"))
    fixed = inputs is not None and inputs.get("dynamic") is False
    match number, bits, acting:
        case "float", 8, ("float", 8):
            return "fp8_block" if strategy == "block" else "fp8_static" if fixed else "fp8"
        case "int", 8, ("int", 8):
            return "int8"
        case "int", 8, None:
            return "int8_weight"
        case "int", 4, None:
            ordered = weights.get("actorder") is not None
            return "awq_int4" if weights.get("symmetric") is False and not ordered else "gptq_int4"
        case "float", 4, ("float", 4):
            return "mxfp4" if size == 32 else "nvfp4"
        case "float", 4, None:
            return "mxfp4" if size == 32 else None
        case _:
            return None


def _modelopt(keys: Keys) -> Quantization:
    """ModelOpt writes the same keys flat into config.json and nested into hf_quant_config.json."""
    nested = keys.get("quantization")
    inner = cast("Keys", nested) if isinstance(nested, dict) else keys
    algorithm = (_word(inner, "quant_algo") or "").upper()
    scheme, weight, activation, size = MODELOPT.get(algorithm, (None, None, None, None))
    kv = (_word(inner, "kv_cache_quant_algo") or "").upper()
    scheme_of_cache = inner.get("kv_cache_scheme")
    kv_bits = {"FP8": 8, "INT8": 8, "NVFP4": 4}.get(kv)
    if kv_bits is None and isinstance(scheme_of_cache, dict):
        kv_bits = _whole(cast("Keys", scheme_of_cache), "num_bits")
    return Quantization(
        method="modelopt", scheme=scheme, weight_bits=weight, activation_bits=activation,
        group_size=_group(inner, "group_size") or size, excluded=_excluded(inner), kv_bits=kv_bits,
    )  # fmt: skip


MODELOPT: dict[str, tuple[str | None, int | None, int | None, int | None]] = {
    "FP8": ("fp8_static", 8, 8, 0),
    "FP8_PER_CHANNEL_PER_TOKEN": ("fp8", 8, 8, 0),
    "FP8_PB_WO": ("fp8_block", 8, 16, 128),
    "NVFP4": ("nvfp4", 4, 4, 16),
    "NVFP4_AWQ": ("nvfp4", 4, 4, 16),
    "W4A16_AWQ": ("awq_int4", 4, 16, 128),
    "W4A8_AWQ": (None, 4, 8, 128),
    "W8A16": ("int8_weight", 8, 16, 0),
    "W8A8_SQ_PER_CHANNEL": ("int8", 8, 8, 0),
    "MXFP8": (None, 8, 8, 32),
}

READERS: dict[str, Callable[[Keys], Quantization]] = {
    "awq": _awq,
    "gptq": _gptq,
    "gptq_marlin": _gptq,
    "auto-round": _gptq,
    "intel/auto-round": _gptq,
    "fp8": _fp8,
    "fbgemm_fp8": _fp8,
    "mxfp4": _mxfp4,
    "bitsandbytes": _bitsandbytes,
    "compressed-tensors": _compressed_tensors,
}


def _word(keys: Keys, name: str) -> str | None:
    value = keys.get(name)
    return value if isinstance(value, str) else None


def _whole(keys: Keys, *names: str) -> int | None:
    for name in names:
        value = keys.get(name)
        if isinstance(value, int) and not isinstance(value, bool) and 0 < value <= 64:
            return value
    return None


def _group(keys: Keys, *names: str) -> int | None:
    """A group size; -1 is how the tools write one scale a channel."""
    for name in names:
        value = keys.get(name)
        if isinstance(value, int) and not isinstance(value, bool):
            return max(0, value)
    return None


def _flag(value: object) -> bool | None:
    return value if isinstance(value, bool) else None


def _opposite(value: object) -> bool | None:
    return not value if isinstance(value, bool) else None


def _excluded(keys: Keys) -> tuple[str, ...]:
    names = ("ignore", "modules_to_not_convert", "exclude_modules", "llm_int8_skip_modules", "ignored_layers")
    for name in names:
        value = keys.get(name)
        if isinstance(value, list) and value:
            return tuple(word for word in value if isinstance(word, str))
    return ()

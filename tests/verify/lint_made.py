"""Tiny quantized checkpoints of every dialect, whole, for rules to be tested on with one fault at a time."""

import json
import struct
from array import array
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from model_optimizer.core import Comparison, Verdict, plugins
from model_optimizer.flow.format import verify_format
from model_optimizer.system.safetensors_header import BITS
from model_optimizer.testing import checkpoints
from model_optimizer.verify.format_engine import Target

Layout = dict[str, tuple[str, tuple[int, ...]]]
ONE = {
    "F32": struct.pack("<f", 1.0),
    "F16": struct.pack("<e", 1.0),
    "BF16": b"\x80\x3f",
    "F8_E4M3": b"\x38",
}
SCALES = ("scale", "scales", "scale_inv", "scale_2")
CONFIG: Mapping[str, Any] = {
    **checkpoints.TINY_LLAMA, "hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 1,
    "tie_word_embeddings": True, "head_dim": 32, "num_key_value_heads": 4,
}  # fmt: skip
ATTENTION = dict.fromkeys(("q_proj", "k_proj", "v_proj", "o_proj"), (128, 128))
MLP = {"gate_proj": (256, 128), "up_proj": (256, 128), "down_proj": (128, 256)}
LINEAR = {
    **{f"model.layers.0.self_attn.{name}": shape for name, shape in ATTENTION.items()},
    **{f"model.layers.0.mlp.{name}": shape for name, shape in MLP.items()},
}


def plain() -> Layout:
    made: Layout = {
        "model.embed_tokens.weight": ("BF16", (64, 128)),
        "model.norm.weight": ("BF16", (128,)),
        "model.layers.0.input_layernorm.weight": ("BF16", (128,)),
        "model.layers.0.post_attention_layernorm.weight": ("BF16", (128,)),
    }
    return made


def compressed(
    layout: str, weights: Mapping[str, Any], inputs: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """config.json as llm-compressor writes it."""
    group = {"targets": ["Linear"], "weights": weights, "input_activations": inputs}
    described = {
        "quant_method": "compressed-tensors", "format": layout, "ignore": ["lm_head"],
        "config_groups": {"group_0": group},
    }  # fmt: skip
    return {**CONFIG, "quantization_config": described}


def fp8(*, block: bool = False, static: bool = False) -> tuple[dict[str, Any], Layout]:
    made = plain()
    for name, (rows, columns) in LINEAR.items():
        made[f"{name}.weight"] = ("F8_E4M3", (rows, columns))
        made[f"{name}.weight_scale"] = ("BF16", (rows // 128, columns // 128) if block else (rows, 1))
        if static:
            made[f"{name}.input_scale"] = ("F32", (1,))
    weights = {"num_bits": 8, "type": "float", "strategy": "block" if block else "channel"}
    weights |= {"block_structure": [128, 128]} if block else {}
    inputs = {"num_bits": 8, "type": "float", "dynamic": not static, "strategy": "token"}
    return compressed("float-quantized", weights, inputs), made


def packed(bits: int = 4, group: int = 128) -> tuple[dict[str, Any], Layout]:
    made = plain()
    for name, (rows, columns) in LINEAR.items():
        made[f"{name}.weight_packed"] = ("I32", (rows, columns * bits // 32))
        made[f"{name}.weight_scale"] = ("BF16", (rows, columns // group))
        made[f"{name}.weight_shape"] = ("I64", (2,))
    weights = {"num_bits": bits, "type": "int", "strategy": "group", "group_size": group, "symmetric": True}
    return compressed("pack-quantized", weights), made


def nvfp4() -> tuple[dict[str, Any], Layout]:
    made = plain()
    for name, (rows, columns) in LINEAR.items():
        made[f"{name}.weight_packed"] = ("U8", (rows, columns // 2))
        made[f"{name}.weight_scale"] = ("F8_E4M3", (rows, columns // 16))
        made[f"{name}.weight_global_scale"] = ("F32", (1,))
        made[f"{name}.input_global_scale"] = ("F32", (1,))
    weights = {"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16}
    return compressed("nvfp4-pack-quantized", weights, {**weights, "dynamic": "local"}), made


def autoawq() -> tuple[dict[str, Any], Layout]:
    made = plain()
    for name, (rows, columns) in LINEAR.items():
        made[f"{name}.qweight"] = ("I32", (columns, rows // 8))
        made[f"{name}.qzeros"] = ("I32", (columns // 128, rows // 8))
        made[f"{name}.scales"] = ("F16", (columns // 128, rows))
    described = {"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True, "version": "gemm"}
    return {**CONFIG, "quantization_config": described}, made


def gptq() -> tuple[dict[str, Any], Layout]:
    made = plain()
    for name, (rows, columns) in LINEAR.items():
        made[f"{name}.qweight"] = ("I32", (columns // 8, rows))
        made[f"{name}.qzeros"] = ("I32", (columns // 128, rows // 8))
        made[f"{name}.scales"] = ("F16", (columns // 128, rows))
        made[f"{name}.g_idx"] = ("I32", (columns,))
    described = {"quant_method": "gptq", "bits": 4, "group_size": 128, "desc_act": True, "sym": True}
    return {**CONFIG, "quantization_config": described}, made


def modelopt() -> tuple[dict[str, Any], Layout]:
    made = plain()
    for name, (rows, columns) in LINEAR.items():
        made[f"{name}.weight"] = ("F8_E4M3", (rows, columns))
        made[f"{name}.weight_scale"] = ("F32", ())
        made[f"{name}.input_scale"] = ("F32", ())
    return dict(CONFIG), made


def makers_fp8() -> tuple[dict[str, Any], Layout]:
    """As DeepSeek and Qwen publish theirs."""
    made = plain()
    for name, (rows, columns) in LINEAR.items():
        made[f"{name}.weight"] = ("F8_E4M3", (rows, columns))
        made[f"{name}.weight_scale_inv"] = ("F32", (rows // 128, columns // 128))
    described = {"quant_method": "fp8", "weight_block_size": [128, 128], "activation_scheme": "dynamic"}
    return {**CONFIG, "quantization_config": described}, made


def write(
    folder: Path, config: Mapping[str, Any], tensors: Layout, *, values: Mapping[str, bytes] | None = None
) -> Path:
    """A folder whose scales are all 1 and whose inputs lie in groups of 128 in their order; `values` replaces the first bytes of a tensor."""
    checkpoints.write_folder(folder, config, tensors)
    file = folder / "model.safetensors"
    content = bytearray(file.read_bytes())
    length = int.from_bytes(content[:8], "little")
    header = json.loads(bytes(content[8 : 8 + length]))
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        start, end = (8 + length + side for side in entry["data_offsets"])
        if name.endswith(".g_idx"):
            content[start:end] = array("i", [i // 128 for i in range((end - start) // 4)]).tobytes()
        one = ONE.get(entry["dtype"])
        if one and name.endswith(SCALES):
            content[start:end] = one * ((end - start) // (BITS[entry["dtype"]] // 8))
        if values and name in values:
            content[start : start + len(values[name])] = values[name]
    file.write_bytes(content)
    (folder / "tokenizer.json").write_text("{}")
    (folder / "generation_config.json").write_text("{}")
    return folder


def lint(folder: Path, **target: Any) -> Verdict:
    return verify_format(
        folder,
        Target(**target),
        engines=plugins.load_all("model_optimizer.engines"),
        schemes={n: m.SCHEME for n, m in plugins.load_all("model_optimizer.schemes").items()},
    )


def broken(verdict: Verdict) -> dict[str, str]:
    """The rules that are broken, with what each says."""
    return {c.metric: c.where or "" for c in verdict.comparisons if c.outcome == "fail"}


def rule(verdict: Verdict, name: str) -> Comparison:
    return next(c for c in verdict.comparisons if c.metric == name)

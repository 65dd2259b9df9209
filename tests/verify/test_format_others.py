"""Checkpoints as other tools and makers publish them: the sound ones hold all rules, each defect is named."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from . import lint_made as made
from .lint_made import LINEAR, Layout, broken, lint, rule

Made = tuple[dict[str, Any], Layout]
ATTENTION = "model.layers.0.self_attn"
Q = f"{ATTENTION}.q_proj"


def autoawq() -> Made:
    config, tensors = made.autoawq()
    config["quantization_config"] |= {"modules_to_not_convert": None, "backend": "autoawq", "do_fuse": False}
    return config, {**tensors, f"{Q}.bias": ("F16", (128,))}


def autogptq(*, bits: int = 4, group: int = 128) -> Made:
    """It writes a bias and g_idx for every layer, also where neither says anything."""
    config, tensors = made.gptq()
    described = {"bits": bits, "group_size": group, "desc_act": False, "checkpoint_format": "gptq"}
    config["quantization_config"] |= {**described, "damp_percent": 0.01, "static_groups": False, "meta": {}}
    for name, (rows, columns) in LINEAR.items():
        groups = columns // group if group > 0 else 1
        tensors[f"{name}.qweight"] = ("I32", (columns * bits // 32, rows))
        tensors[f"{name}.qzeros"] = ("I32", (groups, rows * bits // 32))
        tensors[f"{name}.scales"] = ("F16", (groups, rows))
        tensors[f"{name}.bias"] = ("F16", (rows,))
    return config, tensors


def deepseek() -> Made:
    """Blocks at odd edges, a router, an indexer, and the layer that predicts a second token."""
    config, tensors = made.makers_fp8()
    config["tie_word_embeddings"] = False
    config["quantization_config"]["fmt"] = "e4m3"
    for name, stored in list(tensors.items()):
        if ".layers.0." in name:
            tensors[name.replace(".layers.0.", ".layers.1.")] = stored
    tensors |= {
        "lm_head.weight": ("BF16", (64, 128)),
        f"{ATTENTION}.kv_a_proj_with_mqa.weight": ("F8_E4M3", (72, 128)),
        f"{ATTENTION}.kv_a_proj_with_mqa.weight_scale_inv": ("F32", (1, 1)),
        f"{ATTENTION}.indexer.weights_proj.weight": ("BF16", (64, 128)),
        "model.layers.0.mlp.gate.weight": ("BF16", (8, 128)),
        "model.layers.0.mlp.gate.e_score_correction_bias": ("F32", (8,)),
        "model.layers.1.eh_proj.weight": ("BF16", (128, 256)),
        "model.layers.1.shared_head.head.weight": ("BF16", (64, 128)),
        "model.layers.1.embed_tokens.weight": ("BF16", (64, 128)),
    }
    return config, tensors


def qwen_fp8() -> Made:
    """Its list names `mlp.gate`, the router, and `gate_proj` is quantized all the same."""
    config, tensors = made.makers_fp8()
    kept = ["lm_head", "model.layers.0.mlp.gate", "model.layers.0.input_layernorm"]
    config["quantization_config"]["modules_to_not_convert"] = kept
    return {**config, "tie_word_embeddings": False}, {**tensors, "lm_head.weight": ("BF16", (64, 128))}


def autofp8() -> Made:
    tensors = made.plain()
    for name, (rows, columns) in LINEAR.items():
        tensors[f"{name}.weight"] = ("F8_E4M3", (rows, columns))
        tensors[f"{name}.weight_scale"] = ("F32", ())
        tensors[f"{name}.input_scale"] = ("F32", ())
    described = {"quant_method": "fp8", "activation_scheme": "static", "ignored_layers": ["lm_head"]}
    return {**made.CONFIG, "quantization_config": described}, tensors


def modelopt_fp8() -> Made:
    config, tensors = made.modelopt()
    tensors |= {f"{ATTENTION}.k_proj.k_scale": ("F32", ()), f"{ATTENTION}.v_proj.v_scale": ("F32", ())}
    described = {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8", "exclude_modules": ["lm_head"]}
    return {**config, "sidecar": {"producer": {"name": "modelopt"}, "quantization": described}}, tensors


def modelopt_nvfp4() -> Made:
    tensors = made.plain()
    for name, (rows, columns) in LINEAR.items():
        if name.startswith(ATTENTION):
            tensors[f"{name}.weight"] = ("BF16", (rows, columns))
            continue
        tensors[f"{name}.weight"] = ("U8", (rows, columns // 2))
        tensors[f"{name}.weight_scale"] = ("F8_E4M3", (rows, columns // 16))
        tensors[f"{name}.weight_scale_2"] = ("F32", ())
        tensors[f"{name}.input_scale"] = ("F32", ())
    kept = ["lm_head", "model.layers.*.self_attn*"]
    described = {"quant_algo": "NVFP4", "group_size": 16, "exclude_modules": kept}
    return {**made.CONFIG, "sidecar": {"quantization": described}}, tensors


def modelopt_experts() -> Made:
    """A mixture: attention in FP8 by its layers, all experts of a block in NVFP4 under one name."""
    config, tensors = modelopt_nvfp4()
    listed: dict[str, object] = {"model.layers.0.mlp.experts": {"quant_algo": "NVFP4", "group_size": 16}}
    for name, stored in list(tensors.items()):
        if ".mlp." in name:
            tensors[name.replace(".mlp.", ".mlp.experts.3.")] = stored
            listed[name.rpartition(".")[0]] = {"quant_algo": "NVFP4", "group_size": 16}
    described = {"quant_algo": "MIXED_PRECISION", "quantized_layers": listed, "exclude_modules": []}
    return {**config, "sidecar": {"quantization": described}}, tensors


def old_compressed(*, name: str = "quantization_config") -> Made:
    """compressed-tensors before 0.10: more keys, the shape in 32 bits; before 0.5 under another name."""
    config, tensors = made.packed()
    described = config.pop("quantization_config")
    described |= {"quantization_status": "frozen", "global_compression_ratio": 1.5, "kv_cache_scheme": None}
    described["config_groups"]["group_0"]["weights"] |= {"actorder": "static", "observer": "minmax"}
    shapes = {name: ("I32", (2,)) for name in tensors if name.endswith("weight_shape")}
    return {**config, name: described}, {**tensors, **shapes}


SOUND: Mapping[str, Callable[[], Made]] = {
    "autoawq": autoawq,
    "autogptq": autogptq,
    "autogptq_8": lambda: autogptq(bits=8),
    "autogptq_rows": lambda: autogptq(group=-1),
    "deepseek": deepseek,
    "qwen_fp8": qwen_fp8,
    "autofp8": autofp8,
    "modelopt_fp8": modelopt_fp8,
    "modelopt_nvfp4": modelopt_nvfp4,
    "old_compressed": old_compressed,
    "older_compressed": lambda: old_compressed(name="compression_config"),
}
WEIGHTS = ("qweight", "weight_packed", "weight")
SCALES = ("scales", "weight_scale_inv", "weight_scale")


def write(folder: Path, config: dict[str, Any], tensors: Layout, **more: Any) -> Path:
    described = config.pop("sidecar", None)
    made.write(folder, config, tensors, **more)
    if described:
        (folder / "hf_quant_config.json").write_text(json.dumps(described))
    return folder


def part(tensors: Layout, words: tuple[str, ...]) -> str:
    """The first tensor of a quantized layer that one of the words ends."""
    layer = "model.layers.0.mlp.down_proj"
    return next(f"{layer}.{word}" for word in words if f"{layer}.{word}" in tensors)


@pytest.mark.parametrize("name", SOUND)
def test_sound_ones_hold_every_rule(tmp_path: Path, name: str) -> None:
    verdict = lint(write(tmp_path / "x", *SOUND[name]()))
    assert broken(verdict) == {}
    assert verdict.outcome == "pass"
    assert (rule(verdict, "ratio").got or 1) < 0.95


@pytest.mark.parametrize("name", SOUND)
def test_a_scale_that_is_missing_is_named(tmp_path: Path, name: str) -> None:
    config, tensors = SOUND[name]()
    lost = part(tensors, SCALES)
    del tensors[lost]
    found = broken(lint(write(tmp_path / "x", config, tensors)))
    assert set(found) == {"scales"}
    assert f"`{lost}` is missing" in found["scales"]


@pytest.mark.parametrize("name", SOUND)
def test_a_scale_too_many_is_named(tmp_path: Path, name: str) -> None:
    config, tensors = SOUND[name]()
    extra = "model.layers.0.mlp.down_proj.input_global_scale"
    found = broken(
        lint(write(tmp_path / "x", config, {**tensors, extra: ("F32", (1,))}, values={extra: b"\0\0\x80?"}))
    )
    assert set(found) == {"extra"}
    assert extra in found["extra"]


NUMBERS = {
    "F16": {"NaN": b"\x00\x7e", "infinity": b"\x00\x7c"},
    "BF16": {"NaN": b"\xc0\x7f", "infinity": b"\x80\x7f"},
    "F32": {"NaN": b"\0\0\xc0\x7f", "infinity": b"\0\0\x80\x7f"},
    "F8_E4M3": {"NaN": b"\x7f", "infinity": b"\x7f"},  # it has no infinity
}


@pytest.mark.parametrize("word", ["NaN", "infinity", "zero"])
@pytest.mark.parametrize("name", SOUND)
def test_a_scale_that_is_no_positive_number_is_named(tmp_path: Path, name: str, word: str) -> None:
    config, tensors = SOUND[name]()
    bad = part(tensors, SCALES)
    dtype = tensors[bad][0]
    content = NUMBERS[dtype].get(word, bytes(len(NUMBERS[dtype]["NaN"])))
    found = broken(lint(write(tmp_path / "x", config, tensors, values={bad: content})))
    assert set(found) == {"scale_values"}
    assert (
        f"`{bad}` has {'NaN' if dtype == 'F8_E4M3' and word == 'infinity' else word}" in found["scale_values"]
    )


@pytest.mark.parametrize("name", SOUND)
def test_a_weight_of_another_shape_is_named(tmp_path: Path, name: str) -> None:
    config, tensors = SOUND[name]()
    wrong = part(tensors, WEIGHTS)
    dtype, (rows, columns) = tensors[wrong]
    found = broken(lint(write(tmp_path / "x", config, {**tensors, wrong: (dtype, (rows * 3, columns * 3))})))
    assert "model.layers.0.mlp.down_proj` is [" in found["architecture"]
    if tensors[part(tensors, SCALES)][1] != ():  # one scale fits any shape
        assert "model.layers.0.mlp.down_proj" in found["shapes"]


@pytest.mark.parametrize("name", SOUND)
def test_a_layer_that_is_quantized_and_left_out_is_named(tmp_path: Path, name: str) -> None:
    config, tensors = SOUND[name]()
    layer = "model.layers.0.mlp.down_proj"
    described = (
        config.get("quantization_config")
        or config.get("compression_config")
        or config["sidecar"]["quantization"]
    )
    word = next(
        (w for w in ("ignore", "ignored_layers", "exclude_modules") if w in described),
        "modules_to_not_convert",
    )
    described[word] = [*(described.get(word) or ()), layer]
    found = broken(lint(write(tmp_path / "x", config, tensors)))
    assert found["excluded"].startswith(f"`{layer}` is quantized")


@pytest.mark.parametrize("name", SOUND)
def test_no_tokenizer_is_named(tmp_path: Path, name: str) -> None:
    folder = write(tmp_path / "x", *SOUND[name]())
    (folder / "tokenizer.json").unlink()
    assert set(broken(lint(folder))) == {"tokenizer"}


def test_a_layout_that_is_not_known_is_said_and_not_judged(tmp_path: Path) -> None:
    config, tensors = old_compressed()
    config["quantization_config"]["format"] = "marlin-24"
    verdict = lint(write(tmp_path / "x", config, tensors))
    assert broken(verdict) == {}
    assert rule(verdict, "description").outcome == "undecided"
    assert "marlin-24" in (rule(verdict, "description").where or "")


def test_experts_that_modelopt_lists_under_one_name(tmp_path: Path) -> None:
    verdict = lint(write(tmp_path / "x", *modelopt_experts()))
    assert broken(verdict) == {}
    config, tensors = modelopt_experts()
    del config["sidecar"]["quantization"]["quantized_layers"]["model.layers.0.mlp.experts"]
    assert (
        "experts.3.gate_proj` is quantized"
        in broken(lint(write(tmp_path / "y", config, tensors)))["excluded"]
    )


def test_awq_leaves_out_by_letters_and_fp8_by_names(tmp_path: Path) -> None:
    """As vLLM does: `gate` keeps `gate_proj` of an AWQ checkpoint, and the router alone of an FP8 one."""
    config, tensors = autoawq()
    config["quantization_config"]["modules_to_not_convert"] = ["gate"]
    assert "gate_proj` is quantized" in broken(lint(write(tmp_path / "awq", config, tensors)))["excluded"]
    config, tensors = qwen_fp8()
    config["quantization_config"]["modules_to_not_convert"] = ["lm_head", "gate"]
    assert broken(lint(write(tmp_path / "fp8", config, tensors))) == {}

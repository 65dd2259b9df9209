"""The linter: whole checkpoints of every dialect hold all rules, and each planted fault breaks just its own."""

import json
import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from model_optimizer.cli.app import app
from model_optimizer.core import UsageError
from model_optimizer.verify import format_scales

from . import lint_made as made
from .lint_made import Layout, broken, lint, rule

DIALECTS: dict[str, Callable[[], tuple[dict[str, Any], Layout]]] = {
    "fp8": made.fp8,
    "fp8_block": lambda: made.fp8(block=True),
    "fp8_static": lambda: made.fp8(static=True),
    "packed_4": made.packed,
    "packed_8": lambda: made.packed(8, 32),
    "nvfp4": made.nvfp4,
    "autoawq": made.autoawq,
    "gptq": made.gptq,
    "makers_fp8": made.makers_fp8,
}
Q = "model.layers.0.self_attn.q_proj"
DOWN = "model.layers.0.mlp.down_proj"


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_whole_checkpoint_holds_every_rule(tmp_path: Path, dialect: str) -> None:
    verdict = lint(made.write(tmp_path / "x", *DIALECTS[dialect]()))
    assert broken(verdict) == {}
    assert verdict.outcome == "pass"
    assert rule(verdict, "scales").samples == 7
    assert (rule(verdict, "ratio").got or 1) < 0.9


def test_modelopt_describes_itself_beside_config_json(tmp_path: Path) -> None:
    folder = made.write(tmp_path / "x", *made.modelopt())
    assert "nothing describes it" in broken(lint(folder))["excluded"]
    sidecar = {
        "producer": {"name": "modelopt"},
        "quantization": {"quant_algo": "FP8", "exclude_modules": ["lm_head"]},
    }
    (folder / "hf_quant_config.json").write_text(json.dumps(sidecar))
    verdict = lint(folder)
    assert broken(verdict) == {}
    assert rule(verdict, "scales").samples == 7


def _without(tensors: Layout, *names: str) -> Layout:
    return {name: kind for name, kind in tensors.items() if name not in names}


@pytest.mark.parametrize(
    ("dialect", "lost", "says"),
    [
        ("fp8", f"{Q}.weight_scale", "`model.layers.0.self_attn.q_proj.weight_scale` is missing"),
        ("fp8_static", f"{Q}.input_scale", "q_proj.input_scale` is missing"),
        ("packed_4", f"{DOWN}.weight_scale", "down_proj.weight_scale` is missing"),
        ("nvfp4", f"{Q}.weight_global_scale", "weight_global_scale` is missing"),
        ("autoawq", f"{Q}.qzeros", "qzeros` is missing"),
        ("gptq", f"{Q}.g_idx", "g_idx` is missing"),
        ("makers_fp8", f"{Q}.weight_scale_inv", "weight_scale_inv` is missing"),
    ],
)
def test_a_missing_scale(tmp_path: Path, dialect: str, lost: str, says: str) -> None:
    config, tensors = DIALECTS[dialect]()
    found = broken(lint(made.write(tmp_path / "x", config, _without(tensors, lost))))
    assert set(found) == {"scales"}
    assert says in found["scales"]


def test_a_layer_without_one_of_its_weights(tmp_path: Path) -> None:
    """vLLM would start and answer noise."""
    config, tensors = made.fp8()
    more = {
        name.replace("layers.0.", f"layers.{layer}."): stored
        for name, stored in tensors.items()
        for layer in range(3)
    }
    config = {**config, "num_hidden_layers": 3}
    found = lint(made.write(tmp_path / "whole", config, more))
    assert found.outcome == "pass"
    lost = "model.layers.1.mlp.down_proj"
    more = _without(more, f"{lost}.weight", f"{lost}.weight_scale")
    found = broken(lint(made.write(tmp_path / "x", config, more)))
    assert found == {"whole": f"model.layers.*.mlp.down_proj: 2 of 3, first without: {lost}"}


def test_scales_of_another_format_are_extra(tmp_path: Path) -> None:
    config, tensors = made.fp8()
    found = broken(lint(made.write(tmp_path / "x", config, {**tensors, f"{Q}.input_scale": ("F32", (1,))})))
    assert set(found) == {"extra"}


def test_described_as_quantized_and_stored_plain(tmp_path: Path) -> None:
    config, tensors = made.fp8()
    tensors = _without(tensors, f"{DOWN}.weight_scale") | {f"{DOWN}.weight": ("BF16", (128, 256))}
    found = broken(lint(made.write(tmp_path / "x", config, tensors)))
    assert set(found) == {"weight_type"}
    assert f"`{DOWN}` is BF16 and described as float of 8 bits" in found["weight_type"]


def test_excluded_and_quantized_all_the_same(tmp_path: Path) -> None:
    config, tensors = made.fp8()
    config["quantization_config"]["ignore"].append("re:.*o_proj$")
    found = broken(lint(made.write(tmp_path / "x", config, tensors)))
    assert set(found) == {"excluded"}
    assert "o_proj` is quantized, the description leaves it out" in found["excluded"]


def test_a_part_of_a_stacked_layer_left_out(tmp_path: Path) -> None:
    """vLLM loads q, k and v as one matrix, which has one format."""
    config, tensors = made.fp8()
    config["quantization_config"]["ignore"].append(Q)
    tensors = _without(tensors, f"{Q}.weight_scale") | {f"{Q}.weight": ("BF16", (128, 128))}
    found = broken(lint(made.write(tmp_path / "x", config, tensors)))
    assert set(found) == {"stacked"}


def test_scales_of_the_wrong_shape(tmp_path: Path) -> None:
    config, tensors = made.packed()
    tensors[f"{DOWN}.weight_scale"] = ("BF16", (128, 4))
    found = broken(lint(made.write(tmp_path / "x", config, tensors)))
    assert found == {"shapes": f"`{DOWN}.weight_scale` is [128, 4], [128, 2] is described"}


@pytest.mark.parametrize(
    ("value", "word"),
    [(b"\xc0\x7f", "NaN"), (b"\x80\x7f", "infinity"), (b"\0\0", "zero"), (b"\x80\xbf", "a negative number")],
)
def test_values_that_no_scale_may_have(tmp_path: Path, value: bytes, word: str) -> None:
    config, tensors = made.fp8()
    folder = made.write(tmp_path / "x", config, tensors, values={f"{Q}.weight_scale": value})
    assert broken(lint(folder)) == {"scale_values": f"`{Q}.weight_scale` has {word} at 0"}


def test_numbers_are_decoded_as_they_are_stored() -> None:
    assert list(format_scales.decode(struct.pack("<2f", 1.5, -2), "F32")) == [1.5, -2]
    assert format_scales.decode(struct.pack("<2e", 1.5, -2), "F16") == [1.5, -2]
    assert format_scales.decode(b"\xc0\x3f\x00\xc0", "BF16") == [1.5, -2]
    assert format_scales.decode(b"\x38\x7e\x01\xb8", "F8_E4M3") == [1, 448, 2**-9, -1]
    assert format_scales.decode(b"\x3c\x7b", "F8_E5M2") == [1, 57344]


def test_a_kv_cache_that_is_promised_and_not_there(tmp_path: Path) -> None:
    config, tensors = made.fp8()
    config["quantization_config"]["kv_cache_scheme"] = {"num_bits": 8, "type": "float"}
    assert "no layer has k_scale" in broken(lint(made.write(tmp_path / "x", config, tensors)))["kv_scales"]
    both = {f"model.layers.0.self_attn.{n}_scale": ("F32", (1,)) for n in "kv"}
    assert broken(lint(made.write(tmp_path / "y", config, {**tensors, **both}))) == {}


def test_a_head_that_is_stored_twice(tmp_path: Path) -> None:
    config, tensors = made.fp8()
    tensors["lm_head.weight"] = ("BF16", (64, 128))
    same = lint(made.write(tmp_path / "x", config, tensors))
    assert "for nothing" in (rule(same, "tied").where or "")
    assert same.outcome == "pass"
    other = lint(made.write(tmp_path / "y", config, tensors, values={"lm_head.weight": b"\x80\x3f"}))
    assert "differs from" in broken(other)["tied"]


def test_an_index_that_names_another_file(tmp_path: Path) -> None:
    config, tensors = made.fp8()
    folder = made.write(tmp_path / "x", config, tensors)
    index = {"weight_map": dict.fromkeys(tensors, "model.safetensors"), "metadata": {"total_size": 5}}
    del index["weight_map"][f"{Q}.weight_scale"]
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    verdict = lint(folder)
    assert broken(verdict) == {"index": f"`{Q}.weight_scale` is not in the index"}
    assert "total_size says 5 B" in (rule(verdict, "index_size").where or "")


def test_what_a_server_needs_beside_the_weights(tmp_path: Path) -> None:
    folder = made.write(tmp_path / "x", *made.fp8())
    (folder / "tokenizer.json").unlink()
    (folder / "generation_config.json").unlink()
    verdict = lint(folder)
    assert set(broken(verdict)) == {"tokenizer"}
    assert "missing" in (rule(verdict, "generation_config").where or "")


@pytest.mark.parametrize("content", ["{", "[]", "\0" * 40, "[" * 100_000])
def test_a_tokenizer_that_is_there_and_broken(tmp_path: Path, content: str) -> None:
    folder = made.write(tmp_path / "x", *made.fp8())
    (folder / "tokenizer.json").write_text(content)
    found = broken(lint(folder))
    assert set(found) == {"tokenizer"}
    assert found["tokenizer"].startswith("`tokenizer.json` ")


def test_a_checkpoint_as_large_as_the_original(tmp_path: Path) -> None:
    config, tensors = made.fp8()
    for name, shape in made.LINEAR.items():
        tensors[f"{name}.weight"] = ("BF16", shape)
    assert "nothing became smaller" in broken(lint(made.write(tmp_path / "x", config, tensors)))["ratio"]


def test_tables_in_32_bits_are_not_the_quantizers_fault(tmp_path: Path) -> None:
    """Encoders are often published in float32, and their tables keep it."""
    config, tensors = made.fp8()
    tensors["model.embed_tokens.weight"] = ("F32", (40_000, 128))
    verdict = lint(made.write(tmp_path / "x", {**config, "vocab_size": 40_000}, tensors))
    assert broken(verdict) == {}
    assert "these themselves 0.5" in (rule(verdict, "ratio").where or "")


def test_the_kernel_is_said_before_loading(tmp_path: Path) -> None:
    folder = made.write(tmp_path / "x", *made.fp8())
    old = rule(lint(folder, engine="vllm==0.25.1", gpu="rtx 3090"), "kernel")
    assert "but weight-only (Marlin) on GeForce RTX 3090" in (old.where or "")
    assert "multiplies fp8 itself" in (rule(lint(folder, gpu="l40s"), "kernel").where or "")
    assert rule(lint(folder, engine="vllm_cpu"), "kernel").outcome == "pass"
    blocks = made.write(tmp_path / "y", *made.fp8(block=True))
    assert "no kernel for fp8_block" in broken(lint(blocks, engine="vllm-cpu"))["kernel"]


def test_the_release_must_understand_the_description(tmp_path: Path) -> None:
    """Seen: nvfp4 came with compressed-tensors 0.10.2, `scale_dtype` is refused from 0.11.0 to 0.12.2."""
    folder = made.write(tmp_path / "x", *made.nvfp4())
    assert broken(lint(folder, engine="vllm==0.25.1", gpu="b200")) == {}
    found = broken(lint(folder, engine="vllm==0.9.0"))
    assert "`nvfp4-pack-quantized` is not known to it" in found["readable"]
    config, tensors = made.fp8()
    weights = config["quantization_config"]["config_groups"]["group_0"]["weights"]
    newer = made.write(tmp_path / "y", config, tensors)
    assert broken(lint(newer, engine="vllm==0.12.0")) == {}
    weights["scale_dtype"] = "torch.bfloat16"
    newer = made.write(tmp_path / "z", config, tensors)
    assert "refuses the key `scale_dtype`" in broken(lint(newer, engine="vllm==0.12.0"))["readable"]
    assert broken(lint(newer, engine="vllm==0.14.1")) == {}


def test_a_release_that_is_not_known_is_said(tmp_path: Path) -> None:
    folder = made.write(tmp_path / "x", *made.fp8())
    said = rule(lint(folder, engine="vllm==9.9.9"), "release")
    assert said.outcome == "pass" and "vLLM 9.9.9 is not in the facts; 0." in (said.where or "")
    assert "release" not in {c.metric for c in lint(folder, engine="vllm==0.25.1").comparisons}


def test_groups_must_be_whole_on_every_gpu(tmp_path: Path) -> None:
    folder = made.write(tmp_path / "x", *made.packed())
    assert broken(lint(folder, gpu="h100", tensor_parallel=1)) == {}
    found = broken(lint(folder, gpu="h100", tensor_parallel=4))
    assert "64 inputs a GPU are no whole groups of 128" in found["groups"]


def test_methods_that_others_use(tmp_path: Path) -> None:
    config, tensors = made.fp8()
    config["quantization_config"] = {"quant_method": "bitsandbytes", "load_in_8bit": True}
    verdict = lint(made.write(tmp_path / "x", config, tensors), engine="vllm==0.28.0")
    assert "plug-in" in (rule(verdict, "kernel").where or "")
    config["quantization_config"] = {"quant_method": "hqq"}
    verdict = lint(made.write(tmp_path / "y", config, tensors), engine="vllm==0.28.0")
    assert verdict.outcome == "undecided"


def test_gguf_is_refused_with_advice(tmp_path: Path) -> None:
    (tmp_path / "model.gguf").write_bytes(b"GGUF")
    with pytest.raises(UsageError) as caught:
        lint(tmp_path)
    assert "llama-server" in caught.value.hint[0]
    assert "mopt quantize" in caught.value.hint[1]


def test_a_cut_file_is_one_clear_error(tmp_path: Path) -> None:
    folder = made.write(tmp_path / "x", *made.fp8())
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-10])
    with pytest.raises(UsageError, match="not a whole safetensors file"):
        lint(folder)


def test_the_command_takes_a_folder_alone(tmp_path: Path) -> None:
    folder = made.write(tmp_path / "x", *made.fp8())
    done = CliRunner().invoke(app, ["verify", str(folder), "--gpu", "l40s"])
    assert done.exit_code == 0, done.output
    assert done.output.startswith("PASS: layer format, all ")
    (folder / "tokenizer.json").unlink()
    done = CliRunner().invoke(app, ["verify", str(folder), "--against", str(folder)])
    assert done.exit_code == 1
    assert "FAIL  tokenizer" in done.output


def test_a_pattern_that_could_match_for_ever_is_refused(tmp_path: Path) -> None:
    config, tensors = made.fp8()
    config["quantization_config"]["ignore"] = ["re:(a+)+$"]
    with pytest.raises(UsageError, match="a pattern in `quantization_config` is refused"):
        lint(made.write(tmp_path / "x", config, tensors))
    config["quantization_config"]["ignore"] = ["re:("]
    with pytest.raises(UsageError, match="no regular expression"):
        lint(made.write(tmp_path / "y", config, tensors))


def test_routers_keep_their_precision_undescribed(tmp_path: Path) -> None:
    """As in DeepSeek-V3, whose description names no exceptions."""
    config, tensors = made.makers_fp8()
    tensors["model.layers.0.mlp.gate.weight"] = ("BF16", (8, 128))
    assert broken(lint(made.write(tmp_path / "x", config, tensors))) == {}


def test_layers_that_gptqmodel_left_out(tmp_path: Path) -> None:
    config, tensors = made.gptq()
    config["quantization_config"]["dynamic"] = {"-:.*down_proj": {}}
    parts = ("qweight", "qzeros", "scales", "g_idx")
    tensors = _without(tensors, *(f"{DOWN}.{part}" for part in parts))
    tensors[f"{DOWN}.weight"] = ("BF16", (128, 256))
    assert broken(lint(made.write(tmp_path / "x", config, tensors))) == {}


def test_descriptions_from_outside_are_hostile(tmp_path: Path) -> None:
    """Whatever the types of its values are, the answer is a verdict or one clear error."""
    found: list[dict[str, Any]] = [
        {"quant_method": 5},
        {"quant_method": "compressed-tensors", "config_groups": []},
        {"quant_method": "compressed-tensors", "config_groups": {"a": {"weights": {"num_bits": "x"}}}},
        {"quant_method": "gptq", "bits": -1, "group_size": 10**9, "dynamic": []},
        {"quant_method": "awq", "bits": 3.5, "modules_to_not_convert": [None]},
        {"quant_method": "fp8", "weight_block_size": [0, "x"]},
        {"quant_method": "modelopt", "quantized_layers": {"x": 3}, "ignore": "lm_head"},
    ]
    for number, described in enumerate(found):
        config, tensors = made.fp8()
        config["quantization_config"] = described
        folder = made.write(tmp_path / str(number), config, tensors)
        assert lint(folder, gpu="h100").outcome in ("fail", "undecided", "pass")


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ("fp8", "should hold keys"),
        ([1], "should hold keys"),
        ({"quant_method": 5}, "should be a word"),
        ({"quant_method": "awq", "bits": "four"}, "`bits` is 'four'"),
        ({"quant_method": "gptq", "bits": 4, "group_size": 10**30}, "`group_size` is 1000"),
        ({"quant_method": "compressed-tensors", "config_groups": [1]}, "no group of layers"),
        (
            {"quant_method": "compressed-tensors", "config_groups": {"g": {"weights": "x"}}},
            "no group of layers",
        ),
        ({"quant_method": "awq", "modules_to_not_convert": "lm_head"}, "is no list"),
    ],
)
def test_a_description_that_is_none(tmp_path: Path, said: object, words: str) -> None:
    config, tensors = made.fp8()
    found = broken(lint(made.write(tmp_path / "x", {**config, "quantization_config": said}, tensors)))
    assert words in found["description"]


def test_a_method_that_is_not_known_is_said_with_no_engine_named(tmp_path: Path) -> None:
    config, tensors = made.fp8()
    verdict = lint(
        made.write(tmp_path / "x", {**config, "quantization_config": {"quant_method": "hqq"}}, tensors)
    )
    assert (verdict.outcome, rule(verdict, "description").outcome) == ("undecided", "undecided")
    assert "`hqq` as described is not known here" in rule(verdict, "description").where


@pytest.mark.parametrize("pattern", ["re:(a|a)*b$", "re:.*.*.*.*.*.*x$", "re:(a+)+$"])
def test_patterns_of_many_repetitions_are_refused(tmp_path: Path, pattern: str) -> None:
    config, tensors = made.fp8()
    config["quantization_config"]["ignore"] = [pattern]
    with pytest.raises(UsageError, match="is refused"):
        lint(made.write(tmp_path / "x", config, tensors))


def test_usual_patterns_are_read(tmp_path: Path) -> None:
    config, tensors = made.fp8()
    config["quantization_config"]["ignore"] = [
        "re:.*lm_head",
        r"re:model\.layers\.\d+\.mlp\.gate$",
        "re:^(?!.*mtp).*vision.*",
    ]
    assert broken(lint(made.write(tmp_path / "x", config, tensors))) == {}


def test_a_type_that_the_format_does_not_have(tmp_path: Path) -> None:
    folder = made.write(tmp_path / "x", *made.fp8())
    weights = folder / "model.safetensors"
    content = weights.read_bytes()
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    header["model.norm.weight"]["dtype"] = "Q4_K"
    text = json.dumps(header).encode()
    weights.write_bytes(struct.pack("<Q", len(text)) + text + content[8 + length :])
    assert set(broken(lint(folder))) == {"dtypes"}


@pytest.mark.parametrize("name", ["model.safetensors", "config.json"])
def test_pipes_are_not_waited_for(tmp_path: Path, name: str) -> None:
    folder = made.write(tmp_path / "x", *made.fp8())
    (folder / name).unlink()
    os.mkfifo(folder / name)
    with pytest.raises(UsageError):
        lint(folder)

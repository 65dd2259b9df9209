"""What checkpoints say of their quantization, in our words."""

import pytest

from model_optimizer.core import plugins
from model_optimizer.system.models import quantization


def weights(bits: int, kind: str, **more: object) -> dict[str, object]:
    return {"num_bits": bits, "type": kind, "symmetric": True, **more}


def compressed(weight: object, inputs: object = None, **more: object) -> dict[str, object]:
    group = {"targets": ["Linear"], "weights": weight, "input_activations": inputs}
    return {
        "quant_method": "compressed-tensors",
        "config_groups": {"group_0": group},
        "ignore": ["lm_head"],
        **more,
    }


ACTING8, DYNAMIC8 = weights(8, "float", dynamic=False), weights(8, "float", dynamic=True)

# quantization_config -> scheme, weight bits, activation bits, group size
SAID = [
    ({"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True}, ("awq_int4", 4, 16, 128)),
    ({"quant_method": "awq", "w_bit": 4, "q_group_size": 64}, ("awq_int4", 4, 16, 64)),
    ({"quant_method": "gptq", "bits": 4, "group_size": 128, "desc_act": False}, ("gptq_int4", 4, 16, 128)),
    ({"quant_method": "gptq", "bits": 4, "group_size": -1}, ("gptq_int4", 4, 16, 0)),
    ({"quant_method": "gptq", "bits": 8, "group_size": 32}, ("int8_weight", 8, 16, 32)),
    ({"quant_method": "gptq", "bits": 3, "group_size": 128}, (None, 3, 16, 128)),
    ({"quant_method": "auto-round", "bits": 4, "group_size": 128}, ("gptq_int4", 4, 16, 128)),
    ({"quant_method": "fp8", "weight_block_size": [128, 128], "activation_scheme": "dynamic"}, ("fp8_block", 8, 8, 128)),
    ({"quant_method": "fp8", "activation_scheme": "static"}, ("fp8_static", 8, 8, 0)),
    ({"quant_method": "fp8", "activation_scheme": "dynamic"}, ("fp8", 8, 8, 0)),
    ({"quant_method": "fbgemm_fp8", "activation_scale_ub": 1200.0}, ("fp8", 8, 8, 0)),
    ({"quant_method": "mxfp4"}, ("mxfp4", 4, 16, 32)),
    ({"quant_method": "bitsandbytes", "load_in_4bit": True}, (None, 4, 16, 64)),
    ({"load_in_8bit": True, "load_in_4bit": False}, (None, 8, 16, 0)),
    ({"quant_method": "hqq", "bits": 4}, (None, 4, None, None)),
    ({"strange": 1}, (None, None, None, None)),
    (compressed(weights(4, "int", strategy="group", group_size=128)), ("gptq_int4", 4, 16, 128)),
    (compressed(weights(4, "int", strategy="group", group_size=128, symmetric=False)), ("awq_int4", 4, 16, 128)),
    (
        compressed(weights(4, "int", strategy="group", group_size=64, symmetric=False, actorder="static")),
        ("gptq_int4", 4, 16, 64),
    ),
    (compressed(weights(8, "int", strategy="channel")), ("int8_weight", 8, 16, 0)),
    (compressed(weights(8, "int", strategy="channel"), weights(8, "int", dynamic=True)), ("int8", 8, 8, 0)),
    (compressed(weights(8, "float", strategy="channel"), DYNAMIC8), ("fp8", 8, 8, 0)),
    (compressed(weights(8, "float", strategy="tensor"), ACTING8), ("fp8_static", 8, 8, 0)),
    (compressed(weights(8, "float", strategy="block", block_structure=[128, 128]), DYNAMIC8), ("fp8_block", 8, 8, 128)),
    (compressed(weights(4, "float", strategy="tensor_group", group_size=16), weights(4, "float")), ("nvfp4", 4, 4, 16)),
    (compressed(weights(4, "float", strategy="group", group_size=32)), ("mxfp4", 4, 16, 32)),
    (compressed(weights(4, "int", strategy="group", group_size=128), DYNAMIC8), (None, 4, 8, 128)),
    (compressed(None), (None, None, None, None)),
    ({"quant_method": "compressed-tensors"}, (None, None, None, None)),
    ({"quant_method": "modelopt", "quant_algo": "FP8"}, ("fp8_static", 8, 8, 0)),
    ({"quant_method": "modelopt_fp4", "quant_algo": "NVFP4"}, ("nvfp4", 4, 4, 16)),
    ({"quant_algo": "W4A16_AWQ", "group_size": 128}, ("awq_int4", 4, 16, 128)),
    ({"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION"}, (None, None, None, None)),
]  # fmt: skip


@pytest.mark.parametrize(("said", "want"), SAID)
def test_schemes(
    said: dict[str, object], want: tuple[str | None, int | None, int | None, int | None]
) -> None:
    found = quantization.read({"quantization_config": said})
    assert found is not None
    assert (found.scheme, found.weight_bits, found.activation_bits, found.group_size) == want
    assert found.method


def test_every_scheme_is_one_of_ours() -> None:
    ours = set(plugins.names("model_optimizer.schemes"))
    assert {want[0] for _, want in SAID if want[0]} <= ours


def test_two_kinds_of_layers_are_no_single_scheme() -> None:
    said = compressed(weights(8, "float", strategy="channel"), DYNAMIC8)
    groups = said["config_groups"]
    assert isinstance(groups, dict)
    groups["group_1"] = {"weights": weights(4, "int", strategy="group", group_size=128)}
    found = quantization.read({"quantization_config": said})
    assert found is not None
    assert (found.scheme, found.weight_bits) == (None, None)


@pytest.mark.parametrize(
    ("said", "want"),
    [
        (compressed(weights(4, "int")), ("lm_head",)),
        ({"quant_method": "awq", "modules_to_not_convert": ["visual", 3]}, ("visual",)),
        ({"quant_method": "modelopt", "exclude_modules": ["lm_head", "*router*"]}, ("lm_head", "*router*")),
        (
            {"quant_method": "bitsandbytes", "load_in_4bit": True, "llm_int8_skip_modules": ["head"]},
            ("head",),
        ),
        ({"quant_method": "awq"}, ()),
    ],
)
def test_layers_that_kept_their_precision(said: dict[str, object], want: tuple[str, ...]) -> None:
    found = quantization.read({"quantization_config": said})
    assert found is not None
    assert found.excluded == want


@pytest.mark.parametrize(
    ("said", "want"),
    [
        (compressed(weights(8, "float", strategy="tensor"), ACTING8, kv_cache_scheme=weights(8, "float")), 8),
        (
            {
                "quant_method": "modelopt",
                "quant_algo": "NVFP4",
                "kv_cache_scheme": {"num_bits": 8, "type": "float"},
            },
            8,
        ),
        ({"quant_method": "fp8"}, None),
    ],
)
def test_a_quantized_cache(said: dict[str, object], want: int | None) -> None:
    found = quantization.read({"quantization_config": said})
    assert found is not None
    assert found.kv_bits == want


def test_where_it_is_said() -> None:
    said = {"quant_method": "awq"}
    assert quantization.read({}) is None
    assert quantization.read({"quantization_config": None}) is None
    assert quantization.read({"quantization_config": {}}) is None
    for odd in ("fp8", [1]):
        found = quantization.read({"quantization_config": odd})
        assert found is not None
        assert (found.method, found.scheme) == ("unknown", None)
    assert quantization.read({"text_config": {"quantization_config": said}}) is not None
    assert quantization.read({"compression_config": compressed(weights(4, "int"))}) is not None

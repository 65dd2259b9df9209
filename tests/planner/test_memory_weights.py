"""Weights on one GPU: how they are divided, packed and rounded, and which are left alone."""

from dataclasses import replace

import pytest

from model_optimizer.core import FitQuestion, Lora, Quantization, UsageError, Weight, plugins
from model_optimizer.facts import memory
from model_optimizer.planner.fit import fit
from model_optimizer.planner.memory import card, storage, weights
from model_optimizer.planner.memory.split import (
    Split,
    local_copies,
    local_shape,
    padded_vocabulary,
    require_possible,
)
from model_optimizer.system import models

GIB = 2**30


def spec(name: str = "Qwen/Qwen3-8B"):
    return models.read(name, offline=True)


def scheme(name: str):
    return plugins.load("model_optimizer.schemes", name).SCHEME


def loaded(name: str, *, tensor: int = 1, stages: int = 1, scheme_name: str | None = None) -> weights.Loaded:
    found = spec(name)
    form = storage.precision(found, scheme(scheme_name) if scheme_name else None, 2)
    return weights.load(found, Split(tensor=tensor, stages=stages), form)


def test_sixteen_bit_weights_are_what_vllm_loads() -> None:
    """Logs: 15.27, 14.99, 61.03, 1.12 and 14.2488 GiB."""
    for name, gib in (
        ("Qwen/Qwen3-8B", 15.27),
        ("meta-llama/Meta-Llama-3.1-8B", 14.9888),
        ("Qwen/Qwen3-32B", 61.03),
        ("Qwen/Qwen3-0.6B", 1.12),
        ("Qwen/Qwen2-7B-Instruct", 14.2488),
    ):
        assert loaded(name).bytes / GIB == pytest.approx(gib, abs=0.006), name


def test_two_gpus_hold_half_of_all_but_norms() -> None:
    assert loaded("Qwen/Qwen2-7B-Instruct", tensor=2).bytes / GIB == pytest.approx(7.1217, abs=0.006)


def test_stages_hold_their_layers() -> None:
    one, two = loaded("Qwen/Qwen3-32B"), loaded("Qwen/Qwen3-32B", stages=2)
    layers = {term.name: term.bytes for term in one.terms}
    halves = {term.name: term.bytes for term in two.terms}
    assert halves["weights: feed-forward"] * 2 == layers["weights: feed-forward"]
    assert halves["weights: embedding"] == layers["weights: embedding"]


def test_packed_experts_are_padded() -> None:
    found = spec("openai/gpt-oss-20b")
    form = storage.precision(found, None, 2)
    padding = memory.padding("mxfp4", (9, 0))
    assert padding is not None
    assert weights.load(found, Split(), form, padding).bytes / GIB == pytest.approx(13.47, abs=0.02)
    assert weights.load(found, Split(), form).bytes / GIB < 12.9


def test_a_scheme_leaves_embedding_head_and_norms_alone() -> None:
    terms = {term.name: term for term in loaded("Qwen/Qwen3-8B", scheme_name="fp8_block").terms}
    assert terms["weights: embedding"].bytes == 151_936 * 4096 * 2
    linear = terms["weights: feed-forward"]
    each = 36 * 3 * 12288 * 4096
    assert linear.bytes == each + each // 128 // 128 * 4
    assert "fp8_block, 8 bits" in linear.because


@pytest.mark.parametrize(
    ("name", "bits"),
    [("fp8", 8), ("int8_weight", 8), ("gptq_int4", 4), ("awq_int4", 4), ("nvfp4", 4), ("mxfp4", 4)],
)
def test_each_scheme_stores_its_bits_and_its_scales(name: str, bits: int) -> None:
    made = storage.precision(spec(), scheme(name), 2).storage
    assert made is not None
    size = 4096 * 4096
    assert made.bits == bits
    assert made.bytes(4096, 4096) == size * bits // 8 + made.side_bytes(4096, 4096)
    assert 0 < made.side_bytes(4096, 4096) < size / 8


@pytest.mark.parametrize(
    ("model", "name", "bits"),
    [
        ("Qwen/Qwen3-8B", "awq_int4", 20), ("Qwen/Qwen3-8B", "gptq_int4", 20),
        ("Qwen/Qwen3-30B-A3B", "awq_int4", 16), ("Qwen/Qwen3-30B-A3B", "gptq_int4", 16),
    ],
)  # fmt: skip
def test_zero_points_of_four_bits_but_not_of_experts(model: str, name: str, bits: int) -> None:
    """As `mopt quantize` makes them where nobody says it: 16 bits of scale and 4 of zero point a group."""
    made = storage.precision(spec(model), scheme(name), 2).storage
    assert made is not None
    assert made.side_bytes(4096, 4096) == 4096 * 32 * bits // 8


@pytest.mark.parametrize(("zeros", "bits"), [(True, 20), (False, 16), (None, 20)])
def test_zero_points_are_those_that_a_checkpoint_says_it_has(zeros: bool | None, bits: int) -> None:
    own = Quantization(method="gptq", scheme="gptq_int4", weight_bits=4, group_size=64, zero_points=zeros)
    made = storage.precision(replace(spec(), quantization=own), None, 2).storage
    assert made is not None
    assert made.side_bytes(4096, 4096) == 4096 * 64 * bits // 8


def test_groups_are_those_that_divide_the_columns() -> None:
    """576 columns are no multiple of 128: `mopt quantize` makes groups of 64."""
    whole = spec()
    narrow = tuple(replace(w, shape=(w.shape[0], 576)) if len(w.shape) == 2 else w for w in whole.weights)
    made = storage.precision(replace(whole, weights=narrow), scheme("gptq_int4"), 2).storage
    assert made is not None
    assert made.group == 64


@pytest.mark.parametrize(
    ("name", "columns", "group"),
    [("gptq_int4", 576, 64), ("gptq_int4", 48, 128), ("mxfp4", 64, 32), ("nvfp4", 48, 16), ("fp8", 50, 0)],
)
def test_groups_are_never_smaller_than_kernels_take(name: str, columns: int, group: int) -> None:
    assert scheme(name).group_for([columns, 1024]) == group


@pytest.mark.parametrize(("name", "bits"), [("fp8_kv", 8), ("mixed", 6)])
def test_schemes_for_more_than_weights_store_fewer_bits_too(name: str, bits: int) -> None:
    made = storage.precision(spec(), scheme(name), 2).storage
    assert made is not None
    assert made.bits == bits == scheme(name).weight_bits
    assert loaded("Qwen/Qwen3-8B", scheme_name=name).bytes < 0.65 * loaded("Qwen/Qwen3-8B").bytes


def test_eight_bits_in_groups_have_a_scale_for_each() -> None:
    made = storage.precision(spec(), scheme("int8_weight"), 2).storage
    assert made is not None
    assert made.side_bytes(4096, 4096) == 4096 * 128 * 2


def test_what_a_checkpoint_excludes_stays_in_sixteen_bits() -> None:
    found = replace(
        spec(),
        quantization=Quantization(
            method="compressed-tensors",
            scheme="fp8",
            weight_bits=8,
            group_size=0,
            excluded=("re:.*lm_head", "re:.*self_attn.*", "model.layers.0.mlp.down_proj"),
        ),
    )
    form = storage.precision(found, None, 2)
    quantized = {w.name.rpartition(".layers.*.")[2] for w in found.weights if form.quantizes(w)}
    assert quantized == {"mlp.gate_proj.weight", "mlp.up_proj.weight"}


def test_patterns_of_a_checkpoint_are_never_run() -> None:
    """This expression takes minutes on a name of 30 letters where it is run as one."""
    found = replace(
        spec(),
        quantization=Quantization(
            method="fp8", scheme="fp8", weight_bits=8, excluded=("re:(a+)+$", "re:[", "[")
        ),
    )
    form = storage.precision(found, None, 2)
    assert form.quantizes(next(w for w in found.weights if w.role == "mlp"))


def test_adapters_have_two_matrices_a_layer() -> None:
    """vLLM 0.8.5 loaded Qwen3-4B with rank 32 in 0.131 GiB more."""
    term = weights.lora(spec("Qwen/Qwen3-4B"), Split(), Lora(slots=1, rank=32), 2)
    assert term.bytes / GIB == pytest.approx(0.131, abs=0.004)
    assert weights.lora(spec("Qwen/Qwen3-4B"), Split(), Lora(slots=4, rank=32), 2).bytes == 4 * term.bytes


def test_the_vocabulary_is_padded_before_it_is_divided() -> None:
    found = replace(spec(), vocab_size=100)
    weight = Weight(name="model.embed_tokens.weight", shape=(100, 8), role="embedding", split="rows")
    assert padded_vocabulary(found) == 128
    assert local_shape(weight, found, Split(tensor=2)) == (64, 8)


def test_key_heads_are_repeated_when_there_are_more_gpus() -> None:
    found = spec()
    weight = next(w for w in found.weights if "k_proj" in w.name)
    assert (
        local_shape(weight, found, Split(tensor=8))
        == local_shape(weight, found, Split(tensor=16))
        == (128, 4096)
    )
    assert local_copies(weight, found, Split(stages=5)) == 8


@pytest.mark.parametrize(("tensor", "stages"), [(3, 1), (5, 1), (64, 1), (1, 37)])
def test_divisions_that_do_not_go(tensor: int, stages: int) -> None:
    with pytest.raises(UsageError):
        require_possible(spec(), Split(tensor=tensor, stages=stages))


def test_rotary_tables_only_where_there_is_rotation() -> None:
    assert weights.rotary_bytes(spec()) == 40960 * 128 * 2
    assert weights.rotary_bytes(spec("deepseek-ai/DeepSeek-V2")) == 163840 * 64 * 2
    assert weights.rotary_bytes(spec("sentence-transformers/all-MiniLM-L6-v2")) == 0


def test_a_model_whose_experts_alone_have_four_bits() -> None:
    """Kimi-K2-Thinking: its list of exceptions has words in brackets, and its files are published as 594 GB."""
    found = fit(
        FitQuestion(
            model=models.read("moonshotai/Kimi-K2-Thinking"),
            gpu=card.named("h200"),
            tensor_parallel=8,
            max_model_len=8192,
        )
    )
    said = {term.name: term.because for term in found.terms}
    assert "4 bits" in said["weights: experts"]
    assert all(
        "x 2 B" in said[f"weights: {name}"] for name in ("feed-forward", "shared experts", "attention")
    )
    assert 8 * found.weights_bytes == pytest.approx(594e9, rel=0.05)

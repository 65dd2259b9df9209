"""llama.cpp: what lies on the GPU and what in host memory, and what would fit instead."""

from dataclasses import replace

import pytest

from model_optimizer.core import Fit, FitQuestion, GgufModel, GpuMemory, UsageError, plugins
from model_optimizer.planner.memory import llama_cpp
from model_optimizer.system import models

GIB = 2**30
CARD = GpuMemory(name="card", total_bytes=8 * GIB, compute_capability=(8, 9))
# Sizes of an 8B model in Q4_K_M, rounded.
MODEL = GgufModel(
    name="8b",
    architecture="llama",
    layers=(130_000_000,) * 32,
    input_bytes=280_000_000,
    output_bytes=430_000_000,
    kv_widths=(2048,) * 32,
    hidden_size=4096,
    intermediate_size=14336,
    vocab_size=128_256,
    max_position=131_072,
    format="Q4_K",
)


def fit(model: GgufModel = MODEL, card: GpuMemory = CARD, **choices: object) -> Fit:
    spec = models.read("Qwen/Qwen3-8B", offline=True)
    question = FitQuestion(model=spec, gpu=card, engine="llama.cpp", **choices)  # type: ignore[arg-type]
    return llama_cpp.fit(question, model)


def test_all_layers_and_the_head_are_on_the_gpu() -> None:
    found = fit(max_model_len=8192)
    assert found.fits
    assert found.weights_bytes == 32 * 130_000_000 + 430_000_000
    assert found.kv_cache_bytes == 32 * 2048 * 2 * 8192
    assert found.kv_bytes_per_token == 32 * 2048 * 2
    assert found.host_bytes == 280_000_000
    assert sum(t.bytes for t in found.terms) <= found.budget_bytes


def test_layers_left_in_host_memory_keep_their_cache_there() -> None:
    found = fit(max_model_len=8192, gpu_layers=10)
    assert found.weights_bytes == 10 * 130_000_000
    assert found.kv_cache_bytes == 10 * 2048 * 2 * 8192
    assert found.host_bytes == 280_000_000 + 430_000_000 + 22 * (130_000_000 + 2048 * 2 * 8192)
    assert fit(gpu_layers=0).non_torch_bytes == 0


def test_what_does_not_fit_says_how_many_layers_would() -> None:
    small = replace(CARD, total_bytes=4 * GIB)
    found = fit(card=small, max_model_len=8192)
    assert (found.fits, found.binding) == (False, "weights")
    layers = int(found.because.rpartition("-ngl ")[2].rstrip(")"))
    assert fit(card=small, max_model_len=8192, gpu_layers=layers).fits
    assert not fit(card=small, max_model_len=8192, gpu_layers=layers + 1).fits


def test_the_longest_context_is_the_last_that_fits() -> None:
    longest = fit().largest_max_model_len
    assert longest is not None
    assert fit(max_model_len=longest).fits
    assert not fit(max_model_len=longest + 256).fits
    assert fit(max_model_len=131_072).binding == "kv_cache"


def test_a_cache_of_fewer_bits() -> None:
    assert fit(kv_cache_dtype="q8_0").kv_cache_bytes == fit().kv_cache_bytes * 17 // 32
    with pytest.raises(UsageError, match="no KV cache type `fp8`"):
        fit(kv_cache_dtype="fp8")


def test_slots_share_the_context() -> None:
    found = fit(max_model_len=1000, max_num_seqs=4)
    assert (found.max_concurrency, found.kv_cache_tokens) == (4.0, 4096)


def test_a_budget_and_other_processes() -> None:
    assert not fit(vram_bytes=4 * GIB).fits
    assert fit(card=replace(CARD, used_bytes=GIB)).budget_bytes == 7 * GIB


def test_what_is_wrong() -> None:
    with pytest.raises(UsageError, match="above the limit of `8b`"):
        fit(max_model_len=200_000)


@pytest.mark.parametrize(
    ("scheme", "word", "bits"), [(None, "F16", 16), ("int8_weight", "Q8_0", 8.5), ("int4_rtn", "Q4_0", 4.5)]
)
def test_a_model_without_a_file_is_sized_by_arithmetic(scheme: str | None, word: str, bits: float) -> None:
    spec = models.read("Qwen/Qwen3-8B", offline=True)
    chosen = plugins.load("model_optimizer.schemes", scheme).SCHEME if scheme else None
    made = llama_cpp.from_spec(spec, chosen)
    assert made.format == word and made.source == "assumed"
    total = sum(made.layers) + made.input_bytes + made.output_bytes
    assert total == pytest.approx(spec.parameters * bits / 8, rel=0.001)
    assert made.kv_widths == (2048,) * 36


def test_several_gpus_share_the_layers_and_the_fullest_counts() -> None:
    found = fit(max_model_len=8192, tensor_parallel=2)
    each = 130_000_000 + 2048 * 2 * 8192
    assert found.gpus == 2
    assert found.weights_bytes + found.kv_cache_bytes == 15 * each + 430_000_000, "17 layers, 15 and the head"
    assert found.kv_bytes_per_token == 32 * 2048 * 2, "of the engine, as the tokens are"
    three = fit(max_model_len=8192, tensor_parallel=3)
    assert three.weights_bytes == 10 * 130_000_000 + 430_000_000, "the last one has the head too"
    assert not fit(replace(MODEL, layers=(400_000_000,) * 32), max_model_len=4096).fits
    assert fit(replace(MODEL, layers=(400_000_000,) * 32), max_model_len=4096, tensor_parallel=2).fits

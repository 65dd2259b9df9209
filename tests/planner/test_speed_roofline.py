"""Time of a step: what must hold on any GPU, and what schemes and links change."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model_optimizer.core import UsageError
from model_optimizer.core.steps import Batch
from model_optimizer.facts import gpus, speed
from model_optimizer.planner.speed import Roofline, roofline
from model_optimizer.planner.speed.setup import format_of

from .speed_cases import setup


def made(gpu: str = "h100", number: str = "bf16", name: str = "Qwen/Qwen3-8B", **more: object) -> Roofline:
    return roofline(setup(gpu, number, name, **more))


H100 = made()


@given(st.integers(1, 1000), st.integers(1, 20000), st.integers(0, 8192))
def test_more_work_takes_longer(sequences: int, context: int, tokens: int) -> None:
    batch = Batch(sequences=sequences, context=context, tokens=tokens, chunks=1, pairs=tokens**2 / 2)
    now = H100.mixed_ms(batch)
    more = Batch(sequences=sequences + 1, context=context, tokens=tokens, chunks=1, pairs=tokens**2 / 2)
    longer = Batch(sequences=sequences, context=context + 100, tokens=tokens, chunks=1, pairs=tokens**2 / 2)
    assert 0 < now <= H100.mixed_ms(more)
    assert now < H100.mixed_ms(longer)


def test_reading_the_weights_is_the_least_that_a_token_costs() -> None:
    spec = setup().model
    read = (spec.parameters - spec.embedding_parameters) * 2 / 3.35e12 * 1e3
    assert read < H100.decode_ms(1, 100) < 1.7 * read


def test_computing_is_the_least_that_a_prompt_costs() -> None:
    spec = setup().model
    products = 2 * (spec.parameters - spec.embedding_parameters - spec.head_parameters) * 8192
    pairs = spec.layers * 4 * spec.heads * spec.head_dim * 8192**2 / 2
    least = (products + pairs) / 989e12 * 1e3
    assert least < H100.prefill_ms(8192) < 2 * least


@given(st.integers(1, 512), st.integers(1, 8000), st.integers(0, 4096))
def test_parts_add_up_to_the_step(sequences: int, context: int, tokens: int) -> None:
    batch = Batch(sequences=sequences, context=context, tokens=tokens, chunks=1, pairs=tokens**2 / 2)
    told = H100.explain(batch)
    assert told.ms == pytest.approx(H100.mixed_ms(batch))
    assert sum(told.parts.values()) == pytest.approx(told.ms, rel=1e-6)
    assert told.bound in told.parts


def test_few_sequences_wait_for_memory_and_prompts_for_computation() -> None:
    assert H100.explain(Batch(sequences=4, context=500)).bound == "memory bandwidth"
    assert H100.explain(Batch(tokens=8192, chunks=1, pairs=8192**2 / 2)).bound == "compute"


def test_four_bits_read_less_and_compute_no_faster() -> None:
    small = made("rtx 4090", "awq_int4")
    plain = made("rtx 4090", "bf16")
    assert small.decode_ms(1, 100) < 0.5 * plain.decode_ms(1, 100)
    assert small.prefill_ms(4096) > plain.prefill_ms(4096)


def test_fp8_computes_in_eight_bits_from_ada_on() -> None:
    assert made("h100", "fp8").prefill_ms(4096) < made("h100", "bf16").prefill_ms(4096)
    assert made("a100 80gb sxm", "fp8").prefill_ms(4096) > made("a100 80gb sxm", "bf16").prefill_ms(4096)


def test_blocks_of_fp8_are_only_smaller_on_ada() -> None:
    assert not format_of(setup("rtx 4060 laptop", "fp8_block"), "mlp").native
    assert format_of(setup("rtx 4060 laptop", "fp8"), "mlp").native
    assert format_of(setup("h100", "fp8_block"), "mlp").native
    block, tensor = made("rtx 4060 laptop", "fp8_block"), made("rtx 4060 laptop", "fp8")
    assert block.decode_ms(1, 100) == pytest.approx(tensor.decode_ms(1, 100), rel=0.15)
    assert block.prefill_ms(4096) > 1.2 * tensor.prefill_ms(4096)


def test_the_head_keeps_sixteen_bits() -> None:
    assert format_of(setup("h100", "fp8"), "head").bytes == 2
    assert format_of(setup("h100", "mxfp4", "openai/gpt-oss-120b"), "attention").bytes == 2
    assert format_of(setup("h100", "mxfp4", "openai/gpt-oss-120b"), "expert").bytes < 0.6


def test_fp8_halves_the_reading_of_the_cache() -> None:
    long = Batch(sequences=64, context=16000)
    assert made(kv_bits=8).mixed_ms(long) < 0.85 * made().mixed_ms(long)


def test_a_geforce_comes_nearer_to_its_peak_than_a_card_of_less_power() -> None:
    """RTX 4090 has 165 TFLOPS and 450 W, L4 has 121 and 72 W."""
    flops = 2 * 7.57e9 * 2048 * 1e-12
    large, small = made("rtx 4090").prefill_ms(2048), made("l4").prefill_ms(2048)
    assert flops / large * 1e3 > 0.6 * gpus.find("rtx 4090").dense_tflops.bf16  # pyright: ignore[reportOperatorIssue]
    assert flops / small * 1e3 < 0.5 * gpus.find("l4").dense_tflops.bf16  # pyright: ignore[reportOperatorIssue]


def test_without_graphs_the_host_sets_the_pace() -> None:
    eager = made(eager=True)
    assert eager.decode_ms(1, 100) > 2 * H100.decode_ms(1, 100)
    assert eager.explain(Batch(sequences=1, context=100)).bound == "launch overhead"


def test_all_reduces_cost_more_over_pcie_than_over_nvlink() -> None:
    name = "meta-llama/Llama-3.3-70B-Instruct"
    link = made("h100", "fp8", name, tensor_parallel=4).explain(
        Batch(tokens=4096, chunks=1, pairs=4096**2 / 2)
    )
    bus = made("l20", "fp8", name, tensor_parallel=4).explain(Batch(tokens=4096, chunks=1, pairs=4096**2 / 2))
    assert link.bound == "compute"
    assert bus.parts["network"] > 20 * link.parts["network"]
    assert bus.bound == "network"


def test_two_gpus_halve_less_than_half() -> None:
    one, two = H100.decode_ms(16, 1000), made(tensor_parallel=2).decode_ms(16, 1000)
    assert one / 2 < two < one


def test_a_batch_meets_more_experts_than_a_token() -> None:
    mixture = made("h200", "bf16", "Qwen/Qwen3-30B-A3B").mixtures[0]
    assert mixture.met(1) == pytest.approx(8, rel=0.15)
    assert mixture.met(1) < mixture.met(16) < mixture.met(4096) <= 128


def test_a_pipeline_adds_up_its_stages() -> None:
    whole, stages = H100.decode_ms(1, 1000), made(pipeline_parallel=4).decode_ms(1, 1000)
    assert stages == pytest.approx(whole, rel=0.05)


def test_windows_bound_what_is_read() -> None:
    windows = made("h100", "mxfp4", "openai/gpt-oss-120b")
    full, windowed = (a for a in sorted(windows.attention, key=lambda a: a.window or 0))
    assert windowed.window == 128 and full.window is None
    far, near = Batch(sequences=8, context=8000), Batch(sequences=8, context=128)
    assert windowed.decode(far) == windowed.decode(near)
    assert full.decode(far) > full.decode(near)


def test_tokens_of_an_encoder_see_those_after_them_too() -> None:
    encoder = made("l4", "fp16", "sentence-transformers/all-MiniLM-L6-v2").attention[0]
    spec = setup("l4", "fp16", "sentence-transformers/all-MiniLM-L6-v2").model
    kernels = speed.generation((8, 9)).prefill_attention["bf16"]
    peak = (gpus.find("l4").peak_per_s("bf16") or 0) * speed.shared().sustained * kernels.compute
    assert encoder.pair == pytest.approx(2 * 4 * spec.heads * spec.head_dim / peak)


def test_an_older_release_pays_for_its_host_beside_the_gpu() -> None:
    old, new = made(version="0.11.0").decode_ms(256, 200), made(version="0.30.0").decode_ms(256, 200)
    assert old > new + 4


def test_borrowed_kernels_say_so() -> None:
    assert made("rtx 3090").kind == "roofline-borrowed"
    assert "A100" in made("rtx 3090").provenance
    assert made("l4").kind == "roofline"
    assert speed.generation((10, 3)).borrowed and speed.generation((7, 5)).borrowed


@pytest.mark.parametrize(
    ("gpu", "number", "said"),
    [
        ("mi50", "bf16", "no speed is known"),
        ("gtx 1070", "bf16", "does not run `bf16`"),
        ("b200", "int8", "does not run `int8`"),
        ("t4", "bf16", "does not run `bf16`"),
    ],
)
def test_what_does_not_run_is_refused(gpu: str, number: str, said: str) -> None:
    with pytest.raises(UsageError) as error:
        made(gpu, number, version="0.33.0")
    assert said in error.value.message
    assert error.value.cause


def test_a_card_without_a_peak_is_refused() -> None:
    bare = replace(gpus.find("rtx 5070 laptop"), dense_tflops=gpus.DenseTflops())
    with pytest.raises(UsageError, match="no speed is known for GeForce RTX 5070 Laptop") as error:
        roofline(replace(setup(), gpu=bare))
    assert "bench" in error.value.hint[0]


def test_an_unknown_engine_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UsageError) as error:
        made(engine="tgi")
    assert "vllm" in error.value.hint[0]

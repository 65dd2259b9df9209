"""The profiled step, part by part, against peaks that were measured."""

from dataclasses import replace

import pytest

from model_optimizer.planner.memory import activation, encoder
from model_optimizer.planner.memory.activation import Batch
from model_optimizer.planner.memory.split import Split
from model_optimizer.system import models

MIB = 2**20
BATCH = Batch(
    tokens=8192,
    sequences=1024,
    max_model_len=8192,
    bytes_per_logit=6,
    workspace_bytes=32 * MIB,
    compiles=False,
)


def spec(name: str = "Qwen/Qwen3-8B"):
    return models.read(name, offline=True)


def part(name: str, batch: Batch, model: str = "Qwen/Qwen3-8B", tensor: int = 1) -> activation.Part:
    found = activation.parts(spec(model), Split(tensor=tensor), batch)
    return next(p for p in found if p.name == name)


def test_llama_drops_gate_and_up_and_qwen_keeps_them() -> None:
    """Measured without compilation: 1.72 GiB at 16,384 tokens, and 1.66 GiB at 65,536 of a small model."""
    llama = part("feed-forward", replace(BATCH, tokens=16384), "meta-llama/Meta-Llama-3.1-8B")
    assert llama.bytes == (896 + 448 + 3 * 128 + 32) * MIB
    qwen = part("feed-forward", replace(BATCH, tokens=65536), "Qwen/Qwen3-0.6B")
    assert qwen.bytes == (768 + 384 + 4 * 128 + 32) * MIB


def test_eight_bit_activations_are_a_copy() -> None:
    plain, packed = BATCH, replace(BATCH, activation_bits=8)
    assert part("feed-forward", packed).bytes - part("feed-forward", plain).bytes == 8192 * 12288


def test_the_sampler_has_a_row_for_each_sequence() -> None:
    """Measured: 0.97 GiB."""
    found = part("sampler", BATCH)
    assert found.bytes == 1024 * 151936 * 6 + (64 + 8 + 32) * MIB
    assert part("sampler", replace(BATCH, tokens=16)).bytes < found.bytes / 20


def test_logits_are_gathered_from_all_gpus() -> None:
    one, two = part("sampler", BATCH), part("sampler", BATCH, tensor=2)
    assert two.bytes - one.bytes == 1024 * (151936 // 2) * 2


def test_the_compiler_times_a_copy_of_the_embedding() -> None:
    """Measured: 1.61 GiB for Qwen3-32B, 0.30 GiB for Qwen3-0.6B with 2048 tokens."""
    batch = replace(BATCH, compiles=True, times_embedding=True)
    found = part("compiler", batch, "Qwen/Qwen3-32B")
    assert found.bytes == 151936 * 5120 * 2 + 2 * 80 * MIB
    small = part("compiler", replace(batch, tokens=2048), "Qwen/Qwen3-0.6B")
    assert small.bytes / 2**30 == pytest.approx(0.30, abs=0.01)


def test_experts_work_on_chunks() -> None:
    few = part("experts", BATCH, "Qwen/Qwen3-30B-A3B").bytes
    many = part("experts", replace(BATCH, tokens=65536), "Qwen/Qwen3-30B-A3B").bytes
    states = 4 * (65536 - 8192) * 2048 * 2
    assert many - few == (32768 - 8192) * 8 * (2048 + 768) * 2 + states


def test_latent_attention_expands_earlier_chunks() -> None:
    found = part("latent attention", BATCH, "deepseek-ai/DeepSeek-V2-Lite")
    assert found.bytes > 65536 * 16 * 256 * 2
    assert part("latent attention", BATCH, "deepseek-ai/DeepSeek-V2-Lite", tensor=8).bytes < found.bytes / 2


def test_parts_stand_largest_first() -> None:
    sizes = [p.bytes for p in activation.parts(spec(), Split(), BATCH)]
    assert sizes == sorted(sizes, reverse=True)


def test_embedding_models_sample_nothing() -> None:
    found = activation.parts(spec(), Split(), replace(BATCH, samples=False))
    assert "sampler" not in {p.name for p in found}


FIXED = {
    "vision_config": {"hidden_size": 1152, "intermediate_size": 4304, "image_size": 896, "patch_size": 14}
}
ANY_SIZE = {
    "vision_config": {
        "hidden_size": 1280,
        "intermediate_size": 3420,
        "patch_size": 14,
        "spatial_merge_size": 2,
    }
}


def test_an_encoder_of_fixed_size_runs_as_many_images_as_a_step_holds() -> None:
    found = encoder.profile(
        replace(spec(), config={**FIXED, "mm_tokens_per_image": 256}),
        max_num_batched_tokens=2048,
        element_bytes=2,
    )
    assert found is not None
    assert found.part.bytes == 8 * 4096 * (4 * 1152 + 2 * 4304) * 2 + 2048 * 4096 * 2
    assert found.held_bytes == 2048 * 4096 * 2


def test_an_encoder_of_any_size_runs_the_largest_image() -> None:
    found = encoder.profile(replace(spec(), config=ANY_SIZE), max_num_batched_tokens=2048, element_bytes=2)
    assert found is not None
    assert "65,536 patches" in found.part.because


def test_no_encoder_no_run() -> None:
    assert encoder.profile(spec(), max_num_batched_tokens=2048, element_bytes=2) is None

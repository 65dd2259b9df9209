"""KV cache: numbers worked out by hand from vLLM's rules for groups of layers."""

from math import ceil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model_optimizer.core import UsageError
from model_optimizer.planner.memory import cache
from model_optimizer.planner.memory.cache import LayerKind, Rules, layout
from model_optimizer.planner.memory.split import Split
from model_optimizer.system import models

RULES = Rules(block_size=16, step_tokens=8192)


def kinds(name: str, *, tensor: int = 1, dtype: str = "auto") -> tuple[LayerKind, ...]:
    spec = models.read(name, offline=True)
    return cache.kinds(spec, Split(tensor=tensor), dtype=dtype, element_bytes=2)


def test_grouped_heads_take_two_vectors_a_head_and_layer() -> None:
    (kind,) = kinds("Qwen/Qwen3-8B")
    assert (kind.layers, kind.bytes_per_token) == (36, 2 * 8 * 128 * 2)


def test_fp8_halves_it() -> None:
    (kind,) = kinds("Qwen/Qwen3-8B", dtype="fp8")
    assert kind.bytes_per_token == 2 * 8 * 128


def test_heads_are_divided_and_then_repeated() -> None:
    assert [kinds("Qwen/Qwen3-8B", tensor=t)[0].bytes_per_token for t in (2, 8, 16)] == [2048, 512, 512]


def test_the_latent_is_kept_whole_on_every_gpu() -> None:
    whole = kinds("deepseek-ai/DeepSeek-V2")
    assert kinds("deepseek-ai/DeepSeek-V2", tensor=8) == whole
    assert whole[0].bytes_per_token == (512 + 64) * 2


def test_unknown_formats_are_named() -> None:
    with pytest.raises(UsageError, match="no KV cache format `fp5`"):
        kinds("Qwen/Qwen3-8B", dtype="fp5")


def test_one_group_counts_blocks_of_all_layers() -> None:
    made = layout(kinds("Qwen/Qwen3-8B"), RULES)
    assert made.page_bytes == 16 * 36 * 4096
    blocks = made.blocks(10 * made.page_bytes + 1)
    assert blocks == 10
    assert made.tokens(blocks, 100) == int(10 / ceil(100 / 16) * 100)
    assert made.largest_length(blocks, 1 << 20) == 160


def test_gpt_oss_has_two_groups_of_twelve_layers() -> None:
    """12 layers with a window of 128 and 12 without: a block is one of either, in 12 layers."""
    made = layout(kinds("openai/gpt-oss-20b"), RULES)
    assert made.page_bytes == 16 * 12 * 2048
    # 4000 tokens: 250 blocks for the full layers, min(127 + 8192, 4000) / 16 + 1 = 251 for the others.
    assert made.blocks_a_request(4000) == 250 + 251
    # 20,000 tokens: 1250, and (127 + 8192) / 16 rounded up + 1 = 521.
    assert made.blocks_a_request(20_000) == 1250 + 521
    assert made.tokens(17_710, 20_000) == (10 * 20_000)


def test_before_groups_the_line_divides_blocks_by_them() -> None:
    rules = Rules(block_size=16, step_tokens=8192, line="groups")
    made = layout(kinds("openai/gpt-oss-20b"), rules)
    assert made.tokens(1000, 20_000) == 1000 // 2 * 16


def test_without_windows_all_layers_are_full() -> None:
    rules = Rules(block_size=16, step_tokens=8192, windows=False, line="blocks")
    made = layout(kinds("openai/gpt-oss-20b"), rules)
    assert made.page_bytes == 16 * 24 * 2048
    assert made.blocks_a_request(20_000) == 1250


def test_gemma_3_pads_its_last_group() -> None:
    """5 full layers, 29 with a window: groups of 5, six of them with a window."""
    made = layout(kinds("google/gemma-3-4b-it"), RULES)
    assert made.page_bytes == 16 * 5 * 4096
    assert sum(group.copies for group in made.groups) == 1 + 6
    assert made.blocks_a_request(32_768) == 2048 + 6 * (ceil((1023 + 8192) / 16) + 1)


def test_a_block_of_attention_holds_a_state() -> None:
    """Qwen3-Next: 12 attention layers of 2 KiB a token, 36 layers with a state of 1.05 MiB."""
    made = layout(kinds("Qwen/Qwen3-Next-80B-A3B-Thinking"), RULES)
    state = 1_097_728
    block = 16 * ceil(state / (16 * 2048))
    assert made.page_bytes == 12 * block * 2048
    assert made.blocks_a_request(block * 10) == 10 + 3 * 1


def test_states_alone_take_one_block_a_request() -> None:
    made = layout([LayerKind(layers=24, state_bytes=1000)], RULES)
    assert made.blocks_a_request(1) == made.blocks_a_request(1 << 20) == 1
    assert made.page_bytes == 24_000


def test_encoders_keep_nothing() -> None:
    made = layout(kinds("sentence-transformers/all-MiniLM-L6-v2"), RULES)
    assert not made.groups
    assert made.blocks(1 << 30) == 0


@given(
    blocks=st.integers(1, 100_000),
    window=st.one_of(st.none(), st.integers(1, 4096)),
    full=st.integers(1, 20),
    sliding=st.integers(0, 60),
)
def test_the_largest_length_is_the_last_that_fits(
    blocks: int, window: int | None, full: int, sliding: int
) -> None:
    layers = [LayerKind(layers=full, bytes_per_token=1024)]
    if sliding:
        layers.append(LayerKind(layers=sliding, bytes_per_token=1024, window=window))
    made = layout(layers, RULES)
    longest = made.largest_length(blocks, 1 << 22)
    assert longest == 0 or made.blocks_a_request(longest) <= blocks
    assert longest == 1 << 22 or made.blocks_a_request(longest + 1) > blocks

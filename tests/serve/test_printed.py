"""What engines print of their KV cache, read from lines that they wrote."""

from pathlib import Path

import pytest

from model_optimizer.core import plugins
from model_optimizer.serve.printed import Compared, compare, numbers

ENGINES = plugins.load_all("model_optimizer.engines")
V025 = "(EngineCore pid=670) INFO 11-30 14:03:44 [v1/core/kv_cache_utils.py:2146] GPU KV cache size: 814,368 tokens"
FOR = "(EngineCore pid=670) INFO 11-30 14:03:44 [x.py:1] Maximum concurrency for 8,192 tokens per request: 99.41x"
SGLANG = (
    "[2026-10-01 10:00:00] max_total_num_tokens=443110, chunked_prefill_size=8192, max_running_requests=2770"
)
TRTLLM = "[TRT-LLM] [I] [MemUsageChange] Allocated 59.40 GiB for max tokens in paged KV cache (432512)."
SLOTS = "0.04.223.622 I srv    load_model: initializing, n_slots = 2, n_ctx_slot = 1024, kv_unified = 'false'"
LLAMA = "llama_context: n_ctx                 = 16384"


@pytest.mark.parametrize(
    ("engine", "line", "quantity", "value"),
    [
        ("vllm", V025, "kv_cache_tokens", 814368),
        ("vllm", FOR, "max_concurrency", 99.41),
        ("vllm_cpu", "CPU KV cache size: 2,048 tokens", "kv_cache_tokens", 2048),
        ("sglang", SGLANG, "kv_cache_tokens", 443110),
        ("tensorrt_llm", TRTLLM, "kv_cache_tokens", 432512),
        ("llama_cpp", LLAMA, "kv_cache_tokens", 16384),
        ("llama_cpp", SLOTS, "kv_cache_tokens", 2048),
    ],
)
def test_each_engine_says_it_in_its_own_words(
    engine: str, line: str, quantity: str, value: float, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    log.write_text(f"noise\n{line}\nnoise\n")
    assert numbers(log, ENGINES[engine].PRINTS)[quantity] == value


def test_only_this_start_counts_and_its_last_word(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("KV cache size: 1 tokens\n")
    begun = log.stat().st_size
    with log.open("a") as stream:
        stream.write("KV cache size: 20 tokens\nKV cache size: 30 tokens\n")
    assert numbers(log, ENGINES["vllm"].PRINTS, from_byte=begun) == {"kv_cache_tokens": 30}
    assert numbers(tmp_path / "none", ENGINES["vllm"].PRINTS) == {}


def test_the_error_is_a_share_of_what_was_printed() -> None:
    found = compare({"kv_cache_tokens": 1000.0}, {"kv_cache_tokens": 1100.0, "max_concurrency": 3.0})
    assert [f.quantity for f in found] == ["kv_cache_tokens"]
    assert found[0].error == pytest.approx(0.1)
    assert Compared(quantity="kv_cache_tokens", printed=10.0).error is None

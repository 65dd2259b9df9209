"""The same timelines under vLLM's definitions."""

import pytest

from model_optimizer.bench.vllm_block import vllm_bench
from model_optimizer.core import Slo

from .timeline import outcome


def test_the_first_event_counts_even_without_text() -> None:
    """A chat stream begins with an event that holds a role and no text."""
    request = outcome(100, (150, 170, 190), events=(110, 150, 170, 190), scheduled=50)
    block = vllm_bench([request], Slo(ttft_ms=10), generates=True)
    assert block["mean_ttft_ms"] == 10
    assert block["mean_tpot_ms"] == 40  # (90 - 10) / (3 - 1)
    assert block["mean_itl_ms"] == pytest.approx(80 / 3)
    assert block["median_e2el_ms"] == 90
    assert block["request_goodput"] == pytest.approx(1 / 0.09)


def test_rates_are_over_the_whole_run_and_percentiles_interpolate_over_completed_requests() -> None:
    outcomes = [
        outcome(0, (10, 20), measured=False),
        outcome(100, (110, 120)),
        outcome(100, (130, 200)),
        outcome(150, error="http_5xx", finished=600),
    ]
    block = vllm_bench(outcomes, Slo(), generates=True)
    assert (block["completed"], block["failed"], block["duration"]) == (2, 1, 0.5)
    assert block["request_throughput"] == pytest.approx(4)
    assert block["output_throughput"] == pytest.approx(8)
    assert block["total_token_throughput"] == pytest.approx(48)
    assert (block["median_ttft_ms"], block["std_ttft_ms"]) == (20, 10)
    assert block["p99_ttft_ms"] == pytest.approx(29.8)
    assert block["request_goodput"] is None


def test_embeddings() -> None:
    block = vllm_bench([outcome(0, finished=40), outcome(0, finished=50)], Slo(), generates=False)
    assert block["mean_e2el_ms"] == 45
    assert block["request_throughput"] == pytest.approx(40)
    assert "mean_ttft_ms" not in block


def test_nothing_to_report() -> None:
    block = vllm_bench([], Slo(), generates=True)
    assert (block["completed"], block["mean_ttft_ms"], block["request_throughput"]) == (0, None, None)

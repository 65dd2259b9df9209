"""From steps to service: closed loops, open ones, bursts, and models that generate nothing."""

from dataclasses import replace

import pytest

from model_optimizer.core import Estimate, Lengths, Workload
from model_optimizer.facts import speed
from model_optimizer.planner.service import Limits, Question, capacity, estimate

from .speed_cases import Clock

SHORT = Workload(prompt_tokens=Lengths.fixed(100), output_tokens=Lengths.fixed(11))


def ask(work: Workload, clock: Clock | None = None, replicas: int = 1, **limits: int | None) -> Estimate:
    bounds = Limits(**limits)  # pyright: ignore[reportArgumentType]
    return estimate(Question(steps=clock or Clock(), limits=bounds, workload=work, replicas=replicas))


def opened(qps: float, **more: object) -> Workload:
    return replace(SHORT, arrivals="poisson", qps=qps, **more)  # pyright: ignore[reportArgumentType]


def test_one_client_sees_a_prompt_and_its_steps() -> None:
    found = ask(replace(SHORT, concurrency=1))
    assert found.ttft_ms.p50 == pytest.approx(20)
    assert found.tpot_ms.mean == pytest.approx(10)
    assert found.e2e_ms.p99 == pytest.approx(120)
    assert found.requests_per_s == pytest.approx(1 / 0.12)
    assert found.output_tokens_per_s == pytest.approx(11 / 0.12)
    assert found.saturated is False and found.provenance == "a clock"


def test_an_idle_server_answers_an_open_loop_as_a_single_client() -> None:
    found = ask(opened(0.2))
    alone = ask(replace(SHORT, concurrency=1))
    assert found.ttft_ms.p50 == pytest.approx(alone.ttft_ms.p50, rel=0.01)
    assert found.requests_per_s == 0.2
    assert found.interval["requests_per_s"] == (0.2, 0.2)


def test_waiting_grows_with_the_load() -> None:
    most, _ = capacity(Question(steps=Clock(), limits=Limits(max_num_seqs=8), workload=SHORT))
    times = [
        ask(opened(share * most.requests_per_s), max_num_seqs=8).ttft_ms.p99 or 0.0
        for share in (0.2, 0.6, 0.85, 0.94)
    ]
    assert times == sorted(times)
    assert times[-1] > 3 * times[0]


def test_beyond_what_can_be_done_no_waiting_time_is_named() -> None:
    found = ask(opened(1000), max_num_seqs=8)
    assert found.saturated
    assert (found.ttft_ms.p50, found.ttft_ms.p99, found.e2e_ms.mean) == (None, None, None)
    assert found.requests_per_s is not None and found.requests_per_s < 1000
    assert "1e+03 requests/s are asked" in found.because["ttft_ms"]
    assert not any(name.startswith(("ttft", "e2e")) for name in found.interval)
    assert found.tpot_ms.mean is not None


def test_near_saturation_waiting_has_no_upper_end() -> None:
    most, _ = capacity(Question(steps=Clock(), limits=Limits(max_num_seqs=8), workload=SHORT))
    found = ask(opened(0.95 * most.requests_per_s), max_num_seqs=8)
    assert found.saturated is False and found.ttft_ms.p50 is not None
    assert "ttft_ms" not in found.interval
    assert any("saturates" in note for note in found.notes)


def test_the_interval_of_waiting_is_wider_than_that_of_a_step() -> None:
    most, _ = capacity(Question(steps=Clock(), limits=Limits(max_num_seqs=8), workload=SHORT))
    found = ask(opened(0.75 * most.requests_per_s), max_num_seqs=8)
    low, high = found.interval["ttft_ms.p99"]
    assert low < (found.ttft_ms.p99 or 0) < high
    step_low, step_high = found.interval["tpot_ms"]
    assert high / low > step_high / step_low


def test_a_burst_has_throughput_and_steps_but_no_first_token() -> None:
    found = ask(replace(SHORT, arrivals="burst", requests=100), max_num_seqs=16)
    assert found.saturated is None
    assert found.ttft_ms.p50 is None and "queue" in found.because["ttft_ms"]
    assert found.e2e_ms.mean is None
    assert found.tpot_ms.mean is not None and found.output_tokens_per_s is not None
    assert found.interval["tpot_ms"][0] < found.tpot_ms.mean < found.interval["tpot_ms"][1]


def test_intervals_are_as_wide_as_the_errors_were() -> None:
    found = ask(replace(SHORT, concurrency=4))
    width = speed.accuracy("roofline").tpot
    low, high = found.interval["tpot_ms"]
    assert (high / low) ** 0.5 == pytest.approx(2.718281828**width)
    assert found.interval["tpot_ms"] == found.interval["tpot_ms.mean"]


def test_replicas_share_the_load() -> None:
    one = ask(replace(SHORT, concurrency=4))
    three = ask(replace(SHORT, concurrency=12), replicas=3)
    assert three.output_tokens_per_s == pytest.approx(3 * (one.output_tokens_per_s or 0))
    assert three.tpot_ms == one.tpot_ms
    assert ask(opened(30), replicas=10).ttft_ms.p50 == ask(opened(3)).ttft_ms.p50


def test_a_full_cache_is_named_as_the_limit() -> None:
    work = replace(SHORT, concurrency=32, output_tokens=Lengths.fixed(200))
    assert ask(work, kv_cache_tokens=1000).bound == "KV capacity"
    assert ask(work).bound == "compute"


def test_slots_that_hold_requests_back_are_named() -> None:
    found = ask(replace(SHORT, concurrency=32), max_num_seqs=4)
    assert any("max-num-seqs 4" in note for note in found.notes)


def test_a_model_that_generates_nothing_has_requests_only() -> None:
    work = replace(SHORT, task="embed", arrivals="poisson", qps=5.0)
    found = ask(work, kv_cache_tokens=None)
    assert found.requests_per_s == 5.0
    assert found.input_tokens_per_s == 500
    assert found.e2e_ms.p50 == pytest.approx(20, rel=0.01)
    assert found.output_tokens_per_s is None and found.tpot_ms.mean is None and found.ttft_ms.mean is None
    assert found.because["tpot_ms"] == "the model generates no tokens"
    assert not {"tpot_ms", "ttft_ms", "output_tokens_per_s"} & set(found.interval)


def test_longer_answers_take_longer_and_a_hit_prefix_less() -> None:
    short = ask(replace(SHORT, concurrency=8))
    longer = ask(replace(SHORT, concurrency=8, output_tokens=Lengths.fixed(50)))
    assert (longer.e2e_ms.mean or 0) > (short.e2e_ms.mean or 0)
    hit = ask(replace(SHORT, concurrency=8), cached_tokens=80)
    assert (hit.ttft_ms.mean or 0) < (short.ttft_ms.mean or 0)


def test_a_number_of_requests_counts_filling_and_draining() -> None:
    steady = ask(replace(SHORT, concurrency=8, output_tokens=Lengths.fixed(100)))
    counted = ask(replace(SHORT, concurrency=8, output_tokens=Lengths.fixed(100), requests=12))
    assert (counted.output_tokens_per_s or 0) < 0.9 * (steady.output_tokens_per_s or 0)

"""Which candidate is kept, and in which words."""

import dataclasses

from model_optimizer.core import Candidate, LoadPoint, Measurement, Percentiles, Plan, Slo, Workload
from model_optimizer.core.record import Fate
from model_optimizer.planner import pick
from model_optimizer.planner.pick import violations

MIB = 1 << 20


def candidate(
    name: str, speed: float, *, memory: int | None = 100 * MIB, ttft: float | None = 50, fate: Fate = "served"
) -> Candidate:
    point = LoadPoint(
        target="concurrency 4",
        completed=10,
        failed=0,
        window_s=1,
        output_tokens_per_s=speed,
        ttft_ms=Percentiles(p50=ttft, p90=ttft, p99=ttft),
        memory_bytes=memory,
    )
    plan = Plan(
        model="m", checkpoint="/m", workload=Workload(), slo=Slo(), engine="e", scheme=name, format="onnx"
    )
    return Candidate(name=name, plan=plan, measurement=Measurement(points=(point,)), fate=fate)


REFERENCE = candidate("reference", 100, fate="reference")


def test_the_fastest_that_meets_the_slo_wins() -> None:
    found = pick([REFERENCE, candidate("int8", 200), candidate("int4", 300, ttft=900)], Slo(ttft_ms=200))
    assert found.name == "int8"
    assert found.because == "2.0x the reference's throughput at 1.0x its memory, and it passed verification"


def test_noise_is_not_called_an_improvement() -> None:
    found = pick([REFERENCE, candidate("int8", 104)], Slo())
    assert found.name == "reference"
    assert "keep it" in found.because


def test_equal_speed_in_half_the_memory_is_an_improvement() -> None:
    assert pick([REFERENCE, candidate("int8", 101, memory=50 * MIB)], Slo()).name == "int8"


def test_among_equals_the_smaller_wins() -> None:
    found = pick([REFERENCE, candidate("a", 200), candidate("b", 198, memory=50 * MIB)], Slo())
    assert found.name == "b"


def test_unknown_memory_displaces_nothing() -> None:
    assert pick([REFERENCE, candidate("int8", 101, memory=None)], Slo()).name == "reference"


def test_when_nothing_meets_the_slo_the_closest_is_named_with_its_numbers() -> None:
    found = pick([REFERENCE, candidate("int8", 200)], Slo(ttft_ms=10, percentile=90))
    assert found.name is None
    assert "TTFT P90 is 50.0 ms, 10 ms was asked, at concurrency 4" in found.because


def test_an_unknown_latency_does_not_meet_a_limit() -> None:
    assert violations(candidate("x", 1, ttft=None), Slo(ttft_ms=10)) == [
        "TTFT P99 is unknown, 10 ms was asked, at concurrency 4"
    ]


def test_failed_requests_break_the_slo() -> None:
    one = candidate("x", 1)
    assert one.measurement
    point = dataclasses.replace(one.measurement.points[0], failed=1)
    failing = dataclasses.replace(one, measurement=Measurement(points=(point,)))
    assert violations(failing, Slo()) == ["1 of 11 requests failed at concurrency 4"]
    assert violations(failing, Slo(error_rate=0.1)) == []


def test_nothing_measured_is_no_winner() -> None:
    assert pick([], Slo()).name is None

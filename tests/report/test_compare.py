"""Better, worse or undecided: right on what is known, silent on noise, and refused where it would mean nothing."""

import math
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import NormalDist

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model_optimizer.bench import imports
from model_optimizer.cli.render_compare import compare_text
from model_optimizer.core import (
    ClientHealth,
    Lengths,
    LoadPoint,
    Measurement,
    Percentiles,
    UsageError,
    Workload,
)
from model_optimizer.core.welch import of_runs, ratio, t_quantile
from model_optimizer.report.compare import CompareResult, Terms, compare

DATA = Path(__file__).parents[1] / "data/bench"


def times(mean: float, count: int) -> Percentiles:
    low, high = mean * (1 - 1 / math.sqrt(count)), mean * (1 + 1 / math.sqrt(count))
    return Percentiles(p50=mean, p90=1.3 * mean, p99=2 * mean, mean=mean, p50_ci=(low, high), sd=0.3 * mean)


def point(speed: float = 1.0, *, count: int = 1000, failed: int = 0, concurrency: int = 8) -> LoadPoint:
    return LoadPoint(
        target=f"concurrency {concurrency}",
        concurrency=concurrency,
        completed=count,
        failed=failed,
        window_s=60,
        requests_per_s=10 * speed,
        output_tokens_per_s=1000 * speed,
        ttft_ms=times(50 / speed, count),
        tpot_ms=times(10 / speed, count),
        e2e_ms=times(800 / speed, count),
        prompt_tokens_mean=128.0,
        output_tokens_mean=100.0,
    )


def measured(*points: LoadPoint) -> Measurement:
    return Measurement(
        points=points or (point(),),
        model="org/Model",
        workload=Workload(concurrency=8, prompt_tokens=Lengths.fixed(128), output_tokens=Lengths.fixed(100)),
    )


def verdicts(found: CompareResult) -> dict[str, str]:
    return {change.metric: change.verdict for change in found.changes}


class TestVerdicts:
    def test_the_same_file_is_undecided(self) -> None:
        found = compare([measured()], [measured()])
        assert found.verdict == "undecided"
        assert all(c.ratio == pytest.approx(1) for c in found.changes)

    def test_half_the_speed_is_worse_and_twice_is_better(self) -> None:
        slow = compare([measured()], [measured(point(0.5))])
        assert slow.verdict == "worse"
        assert verdicts(slow)["output tokens/s"] == verdicts(slow)["TTFT mean"] == "worse"
        fast = compare([measured()], [measured(point(2.0))])
        assert fast.verdict == "better" and "worse" not in verdicts(fast).values()

    def test_one_run_does_not_decide_a_few_percent(self) -> None:
        found = compare([measured()], [measured(point(0.95))])
        assert found.verdict == "undecided"
        assert any("assumed" in note for note in found.notes)
        assert all(c.needed_runs and c.needed_runs > 1 for c in found.changes)

    def test_one_run_that_tells_its_spread_does(self) -> None:
        def steady(speed: float) -> LoadPoint:
            found = point(speed)
            spread = {
                n: replace(getattr(found, n), mean_error=0.002) for n in ("ttft_ms", "tpot_ms", "e2e_ms")
            }
            return replace(found, **spread)

        found = compare([measured(steady(1.0))], [measured(steady(0.94))])
        assert found.verdict == "worse" and verdicts(found)["E2E mean"] == "worse"
        assert any("stretches of the run" in note for note in found.notes)
        assert not any("assumed" in note for note in found.notes)
        added = compare([measured(steady(1.0))], [measured(steady(0.94))], Terms(between_runs=0.05))
        assert added.verdict == "undecided" and any("as asked" in note for note in added.notes)

    def test_a_level_that_was_repeated_brings_its_own_spread(self) -> None:
        def repeated(speed: float, width: float) -> list[Measurement]:
            widths = {"requests_per_s": width, "e2e_ms": width}
            return [measured(replace(point(speed), runs=5, half_widths=widths))]

        assert verdicts(compare(repeated(1, 0.005), repeated(0.94, 0.005)))["requests/s"] == "worse"
        assert verdicts(compare(repeated(1, 0.10), repeated(0.94, 0.10)))["requests/s"] == "undecided"

    def test_several_runs_do(self) -> None:
        dice = random.Random(1)

        def runs(speed: float) -> list[Measurement]:
            return [measured(point(speed * dice.gauss(1, 0.004))) for _ in range(6)]

        assert compare(runs(1.0), runs(0.94)).verdict == "worse"
        assert compare(runs(1.0), runs(1.06)).verdict == "better"
        same = compare(runs(1.0), runs(1.0))
        assert same.verdict == "undecided"
        assert not any("assumed" in note for note in same.notes)

    def test_a_change_below_the_margin_is_not_called_one(self) -> None:
        dice = random.Random(1)

        def runs(speed: float) -> list[Measurement]:
            return [measured(point(speed * dice.gauss(1, 0.0005))) for _ in range(8)]

        found = compare(runs(1.0), runs(0.99))
        assert found.verdict == "undecided"
        assert "less than the margin" in found.changes[0].because
        assert found.changes[0].within_margin

    def test_noise_is_seldom_called_a_change(self) -> None:
        dice = random.Random(7)

        def runs() -> list[Measurement]:
            return [measured(point(dice.gauss(1, 0.05))) for _ in range(5)]

        wrong = sum(compare(runs(), runs()).verdict != "undecided" for _ in range(200))
        assert wrong <= 20

    def test_failures_are_worse_even_when_it_is_faster(self) -> None:
        found = compare([measured()], [measured(point(1.0, count=950, failed=50))])
        assert verdicts(found)["failed requests"] == "worse" and found.verdict == "worse"
        one = compare([measured()], [measured(point(1.0, count=999, failed=1))])
        assert verdicts(one)["failed requests"] == "undecided"

    def test_a_percentile_on_a_failure_is_not_compared(self) -> None:
        lost = replace(point(), ttft_ms=Percentiles(p50=50, mean=50, because="p99 falls on a failed request"))
        assert "TTFT p99" not in verdicts(compare([measured()], [measured(lost)]))


class TestComparable:
    def test_a_client_near_its_limits_is_a_note(self) -> None:
        near = ClientHealth(healthy=False, verdict="marked", because="late by 9 ms")
        found = compare([measured()], [replace(measured(), client=near)])
        assert not found.not_comparable
        assert "B was measured by a client near its limits: late by 9 ms" in found.notes
        with pytest.raises(UsageError, match="not comparable"):
            compare([measured()], [replace(measured(), client=replace(near, verdict="invalid"))])

    @pytest.mark.parametrize(
        ("other", "reason"),
        [
            (replace(measured(), model="org/Other"), "models differ"),
            (
                replace(measured(), workload=Workload(concurrency=8, prompt_tokens=Lengths.fixed(256))),
                "prompt tokens differ",
            ),
            (measured(replace(point(), output_tokens_mean=60.0)), "output tokens came out differently"),
            (replace(measured(), invalid="ecc: gpu0"), "B is invalid"),
            (replace(measured(), interrupted=True), "B was interrupted"),
            (
                replace(measured(), client=ClientHealth(healthy=False, because="late")),
                "B measured its own client",
            ),
            (replace(measured(), made_by="GuideLLM"), "definitions differ"),
            (measured(replace(point(), completed=0)), "no completed request"),
        ],
    )
    def test_what_is_not_comparable_is_refused_with_its_reason(self, other: Measurement, reason: str) -> None:
        with pytest.raises(UsageError) as caught:
            compare([measured()], [other])
        assert any(reason in cause for cause in caught.value.cause)

    def test_prompts_of_estimated_lengths_are_answered_with_the_way_to_exact_ones(self) -> None:
        longer = measured(replace(point(), prompt_tokens_mean=140.0))
        with pytest.raises(UsageError) as caught:
            compare([measured(replace(point(), prompt_tokens_mean=128.0))], [longer])
        assert "--tokenizer" in caught.value.hint[0]

    def test_another_machine(self) -> None:
        a, b = (replace(measured(), host_digest=f"sha256:{n}") for n in "ab")
        with pytest.raises(UsageError) as caught:
            compare([a], [b])
        assert caught.value.cause == ("they were measured on different machines",)
        a, b = (replace(measured(), telemetry={"machine": f"{n} x H200"}) for n in (1, 2))
        with pytest.raises(UsageError) as caught:
            compare([a], [b])
        assert caught.value.cause == ("machines differ: 1 x H200 and 2 x H200",)

    def test_the_name_of_a_folder_is_the_same_model(self) -> None:
        assert compare([measured()], [replace(measured(), model="/models/model")]).not_comparable == ()

    def test_force_compares_and_keeps_the_reason(self) -> None:
        other = replace(measured(), model="org/Other")
        found = compare([measured()], [other], Terms(force=True))
        assert found.not_comparable[0].startswith("models differ")
        assert "NOT COMPARABLE" in compare_text(found)

    def test_no_load_in_common(self) -> None:
        with pytest.raises(UsageError, match="no load in common"):
            compare([measured()], [measured(point(concurrency=9))])

    def test_loads_of_one_side_alone_are_left_out_and_said(self) -> None:
        both = measured(point(), point(concurrency=16))
        found = compare([measured()], [both])
        assert {c.load for c in found.changes} == {"concurrency 8"}
        assert any("only on one side" in note for note in found.notes)

    def test_an_open_loop_meets_one_of_vllm_at_when_it_was_sent(self) -> None:
        ours = replace(
            point(),
            qps=5.0,
            concurrency=None,
            start="scheduled",
            ttft_ms=times(500, 1000),
            ttft_from_sent_ms=times(50, 1000),
            e2e_from_sent_ms=times(800, 1000),
        )
        theirs = replace(ours, start="sent", ttft_ms=times(50, 1000))
        found = compare([measured(ours)], [measured(theirs)])
        ttft = next(c for c in found.changes if c.metric == "TTFT mean")
        assert ttft.ratio == pytest.approx(1)


class TestVllm:
    def test_two_results_of_vllm(self) -> None:
        a = imports.read(DATA / "vllm-bench-0.32.json")
        b = imports.read(DATA / "vllm-bench-0.32-detailed.json")
        found = compare([a], [b])
        assert "TTFT mean" in verdicts(found)
        assert verdicts(found)["failed requests"] == "undecided"

    def test_ours_beside_theirs_is_taken_under_their_definitions(self) -> None:
        theirs = imports.read(DATA / "vllm-bench-0.32.json")
        block = theirs.points[0].vllm_bench
        mine = replace(theirs, made_by=None, points=(replace(theirs.points[0], requests_per_s=1.0),))
        found = compare([mine], [theirs])
        rate = next(c for c in found.changes if c.metric == "requests/s")
        assert rate.a == pytest.approx(block["request_throughput"])
        assert any("vLLM's definitions" in note for note in found.notes)


class TestWelch:
    def test_student_s_quantiles(self) -> None:
        for freedom, value in ((1, 12.7062), (2, 4.30265), (5, 2.57058), (30, 2.04227), (1e9, 1.95996)):
            assert t_quantile(0.975, freedom) == pytest.approx(value, rel=1e-4)

    def test_the_interval_covers_as_often_as_it_says(self) -> None:
        dice, inside = random.Random(2), 0
        for _ in range(400):
            a = [math.exp(dice.gauss(0, 0.1)) for _ in range(4)]
            b = [math.exp(dice.gauss(0.2, 0.3)) for _ in range(7)]
            low, high = ratio(of_runs(a), of_runs(b), 0.95).interval
            inside += low <= math.exp(0.2) <= high
        assert 365 <= inside <= 396

    @given(
        st.lists(st.floats(0.1, 100), min_size=2, max_size=6),
        st.lists(st.floats(0.1, 100), min_size=2, max_size=6),
    )
    def test_swapping_the_sides_inverts_the_ratio(self, a: Sequence[float], b: Sequence[float]) -> None:
        there, back = ratio(of_runs(a), of_runs(b), 0.95), ratio(of_runs(b), of_runs(a), 0.95)
        assert there.value * back.value == pytest.approx(1)
        assert there.interval[0] * back.interval[1] == pytest.approx(1)

    def test_the_normal_is_the_limit(self) -> None:
        assert t_quantile(0.9, math.inf) == NormalDist().inv_cdf(0.9)

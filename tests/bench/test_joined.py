"""Requests joined with telemetry: energy, waits, starvation, and what happened at a spike."""

import random
from collections.abc import Sequence
from dataclasses import replace

import pytest

from model_optimizer.bench import timeline as joined
from model_optimizer.bench.exchange import Outcome
from model_optimizer.bench.timeline import Span
from model_optimizer.bench.watched import Seen, kept, watched
from model_optimizer.core import LoadPoint, Measurement, codec
from model_optimizer.system.telemetry import Event, Series, Timeline

S = 1_000_000_000


def outcome(index: int, sent_s: float, ttft_s: float, *, tokens: int = 10, prompt: int = 100) -> Outcome:
    sent = round(sent_s * S)
    first = sent + round(ttft_s * S)
    times = tuple(first + i * S // 100 for i in range(tokens))
    return Outcome(
        index=index,
        measured=True,
        scheduled_ns=sent,
        sent_ns=sent,
        finished_ns=times[-1],
        token_ns=times,
        event_ns=times,
        output_tokens=tokens,
        prompt_tokens=prompt,
        streamed=True,
    )


def steady(value: float, seconds: int = 60, every: float = 0.1) -> Series:
    count = round(seconds / every) + 1
    return Series(times_ns=[round(i * every * S) for i in range(count)], values=[value] * count)


def counter(per_s: float, seconds: int = 60) -> Series:
    times = [i * S // 10 for i in range(seconds * 10 + 1)]
    return Series(times_ns=times, values=[per_s * t / S for t in times])


def span(outcomes: Sequence[Outcome], begin: float = 10, end: float = 50) -> Span:
    return Span(title="x", outcomes=outcomes, begin_ns=round(begin * S), end_ns=round(end * S))


class TestEnergy:
    requests = tuple(outcome(i, 10 + i, 0.1) for i in range(39))

    def test_counters_of_all_gpus_add_up(self) -> None:
        timeline = Timeline(series={"gpu0.energy_j": counter(100), "gpu1.energy_j": counter(50)})
        found = joined.energy(timeline, span(self.requests), idle_w=30)
        assert found.joules == pytest.approx(150 * 40)
        assert found.source == "NVML energy counter"
        assert found.above_idle_j == pytest.approx(120 * 40)
        assert found.j_per_request == pytest.approx(6000 / 39)
        assert found.j_per_token == pytest.approx(6000 / 390)
        assert found.power_w == pytest.approx(150)

    def test_without_counters_power_is_integrated_and_said_to_be(self) -> None:
        found = joined.energy(Timeline(series={"gpu0.power_w": steady(80)}), span(self.requests), None)
        assert (found.joules, found.source) == (pytest.approx(3200), "NVML power, integrated")
        assert found.above_idle_j is None

    def test_one_gpu_without_a_counter_makes_the_sum_unknown(self) -> None:
        short = Series(times_ns=[0, S], values=[0, 1])
        timeline = Timeline(series={"gpu0.energy_j": counter(100), "gpu1.energy_j": short})
        assert joined.energy(timeline, span(self.requests), None).joules is None

    def test_no_gpu_is_not_available(self) -> None:
        found = joined.energy(Timeline(), span(self.requests), None)
        assert (found.joules, found.source) == (None, "not available")

    def test_idle_power_is_that_before_the_load(self) -> None:
        power = Series(times_ns=[0, S, 2 * S, 3 * S], values=[70, 72, 300, 310])
        assert joined.idle_power_w(Timeline(series={"gpu0.power_w": power}), 0, S) == 71


class TestQueue:
    def test_equal_prompts_cannot_starve_each_other(self) -> None:
        found = joined.queue(Timeline(), span([outcome(i, i * 0.1, 0.1) for i in range(100)]))
        assert found.verdict == "fair" and len(found.classes) == 1

    def test_long_prompts_that_are_overtaken_starve(self) -> None:
        """Short ones are served at once; long ones wait for a lull, longer and longer."""
        dice = random.Random(1)
        requests = [
            outcome(i, i * 0.05, 0.05 + dice.random() * 0.01, prompt=100)
            if i % 4
            else outcome(i, i * 0.05, 0.3 + dice.random() * 3, prompt=4000)
            for i in range(400)
        ]
        found = joined.queue(Timeline(), span(requests))
        assert found.verdict == "starved"
        assert "4000 tokens" in found.because and "overtake" in found.because
        long = found.classes[-1]
        assert long.wait_p50_ms is not None and long.wait_p50_ms > 1000
        assert found.classes[0].wait_p99_ms < 20

    def test_long_prompts_that_take_longer_do_not_starve(self) -> None:
        dice = random.Random(1)
        requests = [
            outcome(
                i, i * 0.05, (0.05 if i % 4 else 0.8) + dice.random() * 0.01, prompt=100 if i % 4 else 4000
            )
            for i in range(400)
        ]
        assert joined.queue(Timeline(), span(requests)).verdict == "fair"

    def test_few_requests_settle_nothing(self) -> None:
        assert joined.queue(Timeline(), span([outcome(0, 0, 1)])).verdict == "undecided"
        requests = [outcome(i, i * 0.1, 0.1, prompt=10 if i else 999) for i in range(60)]
        assert joined.queue(Timeline(), span(requests)).verdict == "undecided"

    def test_many_lengths_become_four_classes(self) -> None:
        requests = [outcome(i, i * 0.1, 0.1, prompt=10 + i) for i in range(200)]
        classes = joined.queue(Timeline(), span(requests)).classes
        assert [c.requests for c in classes] == [50, 50, 50, 50]
        assert classes[0].longest < classes[1].shortest

    def test_the_engine_s_own_wait_stands_beside_it(self) -> None:
        timeline = Timeline(series={"engine.queue_s_sum": counter(0.2), "engine.queue_s_count": counter(4)})
        found = joined.queue(timeline, span([outcome(i, i * 0.1, 0.1) for i in range(100)]))
        assert found.engine_mean_ms == pytest.approx(50)


class TestSpike:
    requests = tuple(outcome(i, i * 0.1, 0.05 if i != 300 else 2.0) for i in range(600))

    def spiked(self) -> Timeline:
        clock = steady(1500)
        values = [
            300.0 if 29 * S < t < 32 * S else v for t, v in zip(clock.times_ns, clock.values, strict=True)
        ]
        hot = [0x40 if 28 * S < t < 32 * S else 0 for t in clock.times_ns]
        event = Event(time_ns=31 * S, kind="xid", text="Xid 13 on PCI:0: a kernel did something illegal")
        return Timeline(
            series={
                "gpu0.sm_clock_mhz": Series(times_ns=clock.times_ns, values=values),
                "gpu0.slowed_by": Series(times_ns=clock.times_ns, values=hot),
                "gpu0.power_w": steady(200),
            },
            events=[event],
        )

    def test_what_was_unusual_then_is_named(self) -> None:
        lines = joined.happened(self.spiked(), self.requests, 31 * S)
        assert lines[0].startswith("Xid 13")
        assert "gpu0 was slowed by hardware thermal slowdown" in lines
        assert "gpu0.sm_clock_mhz was 300, usually 1500" in lines
        assert not any("power" in line for line in lines)

    def test_a_quiet_moment_has_nothing_to_say(self) -> None:
        assert joined.happened(self.spiked(), self.requests, 10 * S) == ()

    def test_counters_are_looked_at_as_rates(self) -> None:
        rises = counter(10)
        values = [v + (500 if t >= 31 * S else 0) for t, v in zip(rises.times_ns, rises.values, strict=True)]
        timeline = Timeline(series={"engine.preemptions": Series(times_ns=rises.times_ns, values=values)})
        (line,) = joined.happened(timeline, [], 31 * S)
        assert line.startswith("engine.preemptions per second was")

    def test_the_slowest_first_token_is_found_and_explained(self) -> None:
        ((slow, lines),) = joined.spikes(self.spiked(), span(self.requests, 0, 60))
        assert slow.index == 300
        assert any("clock" in line for line in lines)

    def test_in_flight_counts_what_is_under_way(self) -> None:
        series = joined.in_flight([outcome(0, 0, 1), outcome(1, 0.5, 1)], step_s=0.5)
        assert series is not None
        assert list(series.values[:3]) == [1, 2, 2]


class TestWatched:
    def measurement(self) -> Measurement:
        return Measurement(points=(LoadPoint(target="x", completed=10, failed=0, window_s=40),))

    def seen(self) -> Seen:
        return Seen(spans=[span([outcome(i, 10 + i, 0.1) for i in range(39)])], idle_ns=(0, S))

    def test_the_block_survives_the_codec(self) -> None:
        timeline = Timeline(
            series={
                "gpu0.energy_j": counter(100),
                "gpu0.power_w": steady(100),
                "engine.kv_usage": steady(0.4),
            },
            missing={"gpu0.nvlink_tx_bytes": "not available: Not Supported"},
        )
        found = watched(self.measurement(), timeline, self.seen())
        again = codec.loads(codec.dumps(found), Measurement)
        block = again.telemetry
        assert block["idle_power_w"] == 100
        assert block["missing"] == {"gpu0.nvlink_tx_bytes": "not available: Not Supported"}
        (load,) = block["loads"]
        assert load["energy"]["above_idle_j"] == pytest.approx(0, abs=1e-6)
        assert load["means"]["engine.kv_usage"] == pytest.approx(0.4)
        assert load["means"]["gpu0.energy_j_per_s"] == pytest.approx(100)
        assert len(load["quantiles"]["ttft_ms"]) == 51
        assert len(block["series"]["gpu0.power_w"]["value"]) <= 240
        assert block["series"]["gpu0.power_w"]["time_s"][0] == -10
        assert again.points[0].energy_j == pytest.approx(4000)
        assert again.invalid is None

    def test_a_file_can_be_asked_what_happened(self) -> None:
        clock = steady(1500)
        slow = [300.0 if 28 * S < t < 32 * S else 1500.0 for t in clock.times_ns]
        hot = [64.0 if 28 * S < t < 32 * S else 0.0 for t in clock.times_ns]
        timeline = Timeline(
            series={
                "gpu0.sm_clock_mhz": Series(times_ns=clock.times_ns, values=slow),
                "gpu0.slowed_by": Series(times_ns=clock.times_ns, values=hot),
            },
            events=[Event(time_ns=30 * S, kind="xid", text="Xid 13")],
        )
        again = codec.loads(codec.dumps(watched(self.measurement(), timeline, self.seen())), Measurement)
        lines = joined.happened(kept(again), (), 20 * S)  # the load began at 10 s
        assert lines[:2] == ("Xid 13", "gpu0 was slowed by hardware thermal slowdown")
        assert lines[2].startswith("gpu0.sm_clock_mhz was 300")
        assert joined.happened(kept(again), (), 35 * S) == ()

    @pytest.mark.parametrize("block", [{}, {"series": 3}, {"series": {"a": {"time_s": [1], "value": []}}}])
    def test_a_file_without_a_timeline_has_none(self, block: dict[str, object]) -> None:
        assert kept(replace(self.measurement(), telemetry=block)).series == {}

    def test_a_gpu_that_failed_makes_it_invalid(self) -> None:
        event = Event(time_ns=20 * S, kind="ecc", text="gpu0: 1 uncorrectable memory errors", fatal=True)
        found = watched(self.measurement(), Timeline(events=[event]), self.seen())
        assert found.invalid == "ecc: gpu0: 1 uncorrectable memory errors"
        assert "INVALID: gpu0: 1 uncorrectable memory errors" in found.notes

    def test_one_that_failed_afterwards_does_not(self) -> None:
        event = Event(time_ns=55 * S, kind="ecc", text="x", fatal=True)
        assert watched(self.measurement(), Timeline(events=[event]), self.seen()).invalid is None

    def test_thinning_keeps_peaks(self) -> None:
        values = [1.0] * 5000
        values[2345] = 99.0
        series = Series(times_ns=[i * S // 100 for i in range(5000)], values=values)
        found = watched(self.measurement(), Timeline(series={"gpu0.power_w": series}), self.seen())
        assert max(found.telemetry["series"]["gpu0.power_w"]["value"]) == 99

"""The numbers of a load point, against timelines that were worked out by hand."""

from dataclasses import replace

import pytest

from model_optimizer.bench.latency import e2e_ms, gaps_ms, meets, tpot_ms, ttft_ms
from model_optimizer.bench.sampler import Sampled
from model_optimizer.bench.summary import Judged, load_point
from model_optimizer.bench.window import window
from model_optimizer.core import LoadPoint, Slo

from .timeline import MS, driven, outcome


def point(
    *args, slo: Slo | None = None, generates: bool = True, sampled: Sampled | None = None, **more
) -> LoadPoint:
    judged = Judged(slo=slo or Slo(), generates=generates, sampled=sampled or Sampled())
    return load_point(driven(*args, **more), judged)


class TestOneRequest:
    request = outcome(100, (150, 160, 190), scheduled=80)

    def test_both_starts(self) -> None:
        assert ttft_ms(self.request, scheduled=False) == 50
        assert ttft_ms(self.request, scheduled=True) == 70
        assert e2e_ms(self.request, scheduled=False) == 90
        assert e2e_ms(self.request, scheduled=True) == 110

    def test_time_per_token_divides_by_tokens_not_by_events(self) -> None:
        assert tpot_ms(self.request) == 20
        assert tpot_ms(outcome(0, (10, 20, 30), output_tokens=5)) == 5
        assert tpot_ms(outcome(0, (10,))) is None

    def test_tokens_that_came_together_have_no_gap(self) -> None:
        assert gaps_ms(self.request) == [10, 30]
        assert gaps_ms(outcome(0, (10, 20), event_tokens=(1, 3), output_tokens=4)) == [10, 0, 0]

    def test_every_limit_must_be_met(self) -> None:
        assert meets(self.request, Slo(ttft_ms=50, tpot_ms=20, e2e_ms=90), scheduled=False)
        assert not meets(self.request, Slo(ttft_ms=49), scheduled=False)
        assert not meets(self.request, Slo(tpot_ms=19), scheduled=False)
        assert not meets(self.request, Slo(e2e_ms=90), scheduled=True)
        assert not meets(outcome(0, error="timeout"), Slo(), scheduled=False)


class TestWindow:
    """Two at a time, each 100 ms long; the first two are warm-up."""

    outcomes = (
        outcome(0, (50, 100), measured=False),
        outcome(0, (60, 110), measured=False),
        outcome(100, (150, 200)),
        outcome(110, (160, 210)),
        outcome(200, (250, 300)),
        outcome(210, (260, 310)),
    )

    def test_rates_count_what_ends_while_load_is_offered(self) -> None:
        found = point(self.outcomes, opened=100, closed=300)
        assert found.window_s == 0.2
        assert found.completed == 4
        # of the six, 0, 10/110, 1, 1, 1 and 90/100 lie in (100, 300]
        done = 3 + 10 / 110 + 0.9
        assert found.requests_per_s == pytest.approx(done / 0.2)
        assert found.input_tokens_per_s == pytest.approx(10 * done / 0.2)
        # tokens at 110, 150, 160, 200, 210, 250, 260, 300
        assert found.output_tokens_per_s == pytest.approx(40)
        assert found.window == (
            "from the first measured request until load was no longer offered; rates leave out 2 of warm-up "
            "and the drain of the last 1"
        )

    @pytest.mark.parametrize("times", [(), (25, 50, 75, 100)])
    def test_answers_of_one_length_end_in_waves(self, times: tuple[int, ...]) -> None:
        # Eight in flight, two waves; as the second one ends, nothing is left to send. Streams with and without text.
        waves = [
            outcome(100 * wave + n / 10, tuple(100 * wave + n / 10 + t for t in times),
                    finished=100 * (wave + 1) + n / 10, output_tokens=4)
            for wave in range(2) for n in range(8)
        ]  # fmt: skip
        found = point(waves, opened=0, closed=200)
        assert found.requests_per_s == pytest.approx(80, rel=0.05)
        assert found.output_tokens_per_s == pytest.approx(320, rel=0.12)
        # An open loop counts what ended: a growing queue would make work under way look like work done.
        assert point(waves, opened=0, closed=200, arrivals="constant").requests_per_s == pytest.approx(45)

    def test_percentiles_are_of_all_that_began(self) -> None:
        found = point(self.outcomes, opened=100, closed=300)
        assert (found.ttft_ms.p50, found.e2e_ms.p99, found.itl_ms.mean) == (50, 100, 50)

    def test_a_burst_has_no_steady_state(self) -> None:
        burst = [outcome(0, (10 * i, 10 * i + 5)) for i in range(1, 5)]
        span = window(driven(burst, opened=0, closed=0))
        assert span.whole
        assert span.seconds == pytest.approx(0.045)
        assert point(burst, opened=0, closed=0).requests_per_s == pytest.approx(4 / 0.045)


class TestFailures:
    outcomes = (
        *(outcome(10 * i, (10 * i + 5, 10 * i + 9)) for i in range(9)),
        outcome(90, error="timeout", finished=95),
    )

    def test_they_take_the_tail(self) -> None:
        found = point(self.outcomes, closed=100)
        assert (found.completed, found.failed, found.errors) == (9, 1, {"timeout": 1})
        assert found.error_examples == {"timeout": "told to fail"}
        assert (found.ttft_ms.p90, found.ttft_ms.p99) == (5, None)
        assert found.e2e_ms.because == "p99 falls on a failed request (1 of 10 failed)"
        assert found.e2e_ms.mean == 9

    def test_they_are_no_goodput(self) -> None:
        found = point(self.outcomes, slo=Slo(ttft_ms=5), closed=100)
        assert found.goodput_requests_per_s == pytest.approx(90)
        assert found.attainment == 0.9


def test_an_open_loop_starts_when_the_request_was_wanted() -> None:
    """The second request had to wait for 400 ms before the client could send it."""
    outcomes = [outcome(0, (500,)), outcome(500, (510,), scheduled=100)]
    open_loop = point(outcomes, arrivals="poisson")
    closed_loop = point(outcomes)
    assert (open_loop.start, open_loop.ttft_ms.p50, open_loop.ttft_from_sent_ms.p50) == ("scheduled", 410, 10)
    assert (closed_loop.start, closed_loop.ttft_ms.p50) == ("sent", 10)
    assert closed_loop.ttft_from_scheduled_ms.p50 == 410


def test_without_streaming_there_is_no_time_to_first_token() -> None:
    found = point([outcome(0, finished=40, output_tokens=8)], slo=Slo(ttft_ms=1000))
    assert (found.ttft_ms.p50, found.ttft_ms.because) == (None, "the answers were not streamed")
    assert (found.e2e_ms.p50, found.output_tokens_per_s) == (40, pytest.approx(8))
    assert found.goodput_requests_per_s == 0  # nothing vouches for the limit


def test_embeddings_have_requests_and_input_tokens() -> None:
    found = point([outcome(0, finished=40), outcome(40, finished=80)], generates=False, closed=80)
    assert (found.requests_per_s, found.input_tokens_per_s) == (pytest.approx(25), pytest.approx(250))
    assert (found.output_tokens_per_s, found.ttft_ms.because) == (None, "this interface makes no tokens")
    assert found.tokens_counted_by == "server usage"


def test_token_counts_are_cross_checked() -> None:
    few = outcome(0, (1, 2, 3), output_tokens=2)
    differing = outcome(0, (1, 2), output_tokens=2, event_tokens=(1, 2))
    found = point([few, differing])
    assert found.notes == (
        "1 streams held more events with content than the tokens the server reported",
        "1 streams held another number of token ids than the server reported",
    )
    assert found.tokens_per_chunk == pytest.approx(4 / 5)
    assert found.prompt_tokens_drift == 0


def test_without_usage_events_are_counted_and_it_is_said() -> None:
    from dataclasses import replace

    found = point([replace(outcome(0, (1, 2, 3), prompt_tokens=None), output_tokens=None)])
    assert found.tokens_counted_by == "stream events (the server reported no usage)"
    assert (found.output_tokens_mean, found.input_tokens_per_s) == (3, None)


def test_memory_and_energy_are_of_the_window() -> None:
    sampled = Sampled(
        memory=((0, 10.0), (500 * MS, 30.0), (1500 * MS, 90.0)),
        energy=((-100 * MS, 0.0), (1900 * MS, 200.0)),
        memory_source="a test",
        energy_source="a counter",
    )
    found = point([outcome(0, (500,))], closed=1000, sampled=sampled)
    assert (found.memory_bytes, found.memory_source) == (30, "a test")
    assert (found.energy_j, found.energy_source) == (pytest.approx(100), "a counter")
    nothing = point([outcome(0, (500,))])
    assert (nothing.energy_j, nothing.energy_source) == (None, "not measurable here")
    assert sampled.peak_bytes(600 * MS, 700 * MS) == 90  # the samples on either side
    assert sampled.energy_j(-200 * MS, 0) is None


def test_client_health() -> None:
    outcomes = [outcome(0, (100, 200)), outcome(200, (300, 400))]
    good = point(outcomes, cpu_share=0.3, lags_ms=(1.0, 2.0))
    assert (good.client.healthy, good.client.because) == (True, None)
    busy = point(outcomes, cpu_share=0.9, lags_ms=(1.0, 30.0), slips_ms=(20.0,))
    assert busy.client.healthy is False
    assert busy.client.because == (
        "the client's thread was busy 90% of the time; its event loop was late by 30.0 ms (p99), more than "
        "10.0 ms; requests were begun 20.0 ms late (p99), more than 10.0 ms"
    )


@pytest.mark.parametrize(
    ("more", "ceiling", "verdict"),
    [
        ({"cpu_share": 0.5}, None, "valid"),
        ({"cpu_share": 0.85}, None, "marked"),
        ({"cpu_share": 0.99}, None, "invalid"),
        ({"cpu_share": 0.1}, 2.4, "marked"),  # two requests a second of 2.4
        ({"cpu_share": 0.1}, 1.9, "invalid"),
        ({"cpu_share": 0.1, "processes": 2}, 1.9, "valid"),
        ({"cpu_share": 0.1, "slips_ms": (30.0,)}, None, "marked"),
        ({"cpu_share": 0.1, "slips_ms": (300.0,)}, None, "invalid"),
        ({}, None, None),
    ],
)
def test_near_the_ceiling_is_marked_and_past_it_invalid(more, ceiling, verdict) -> None:
    outcomes = [outcome(0, (100, 200)), outcome(200, (300, 400))]
    run = driven(outcomes, **more)
    found = load_point(
        run, Judged(slo=Slo(), generates=True, sampled=Sampled(), ceiling_requests_per_s=ceiling)
    )
    assert found.client.verdict == verdict


class TestFallingBehind:
    """One request each 50 ms for a second; the load ends at 1000 ms."""

    def notes(self, took_ms: float, queue_ms: float, arrivals: str = "constant") -> tuple[str, ...]:
        rows = [outcome(50 * i, (50 * i + took_ms + queue_ms * i,), index=i) for i in range(20)]
        last = max(o.finished_ns for o in rows) / MS
        run = replace(driven(rows, arrivals=arrivals), ended_ns=round(max(1000, last) * MS))
        judged = Judged(slo=Slo(), generates=True, sampled=Sampled())
        return load_point(run, judged).notes

    def test_a_queue_that_grows_is_told(self) -> None:
        (note,) = [n for n in self.notes(40, 100) if "keep up" in n]
        assert "13 of 20 requests were still unanswered" in note and "1.9 s later" in note

    def test_a_server_that_follows_is_not_blamed(self) -> None:
        assert not [n for n in self.notes(40, 0) if "keep up" in n]
        assert not [n for n in self.notes(200, 0) if "keep up" in n]

    def test_a_closed_loop_cannot_fall_behind(self) -> None:
        assert not [n for n in self.notes(40, 100, "closed") if "keep up" in n]

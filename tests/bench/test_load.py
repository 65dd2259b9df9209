"""The load on a virtual clock: who sends when, and that what is measured is exactly what was."""

from dataclasses import replace
from itertools import islice, pairwise

import pytest

from model_optimizer.bench.arrivals import Ramp, offsets_ns
from model_optimizer.bench.crew import merged, parts_of
from model_optimizer.bench.level import Level
from model_optimizer.bench.overload import Overload
from model_optimizer.bench.request import Prepared
from model_optimizer.bench.sampler import Sampled
from model_optimizer.bench.summary import Judged, load_point
from model_optimizer.core import Slo

from .virtual import drive

BEGIN = 1_000_000_000
CLOSED = Level(title="closed", arrivals="closed", concurrency=4, requests=40, warmup=4)
OPEN = Level(title="open", arrivals="constant", qps=100.0, requests=50)


def point(driven, slo: Slo | None = None):
    return load_point(driven, Judged(slo=slo or Slo(), generates=True, sampled=Sampled()))


class TestTruth:
    """20 ms to the first token, then 5 ms each, four tokens: nothing else may come out."""

    @pytest.mark.parametrize("level", [CLOSED, OPEN], ids=["closed", "open"])
    def test_latencies(self, level) -> None:
        found = point(drive(level))
        assert (found.completed, found.failed) == (level.requests, 0)
        for values, truth in ((found.ttft_ms, 20), (found.tpot_ms, 5), (found.itl_ms, 5), (found.e2e_ms, 35)):
            assert (values.p50, values.p90, values.p99, values.mean) == pytest.approx((truth,) * 4, abs=1e-5)

    def test_throughput_of_a_closed_loop(self) -> None:
        found = point(drive(replace(CLOSED, requests=None, duration_s=3.5)))
        assert found.window_s == pytest.approx(3.5)
        assert found.requests_per_s == pytest.approx(4 / 0.035, rel=0.01)
        assert found.output_tokens_per_s == pytest.approx(4 * found.requests_per_s, rel=0.01)

    def test_throughput_of_an_open_loop(self) -> None:
        found = point(drive(replace(OPEN, requests=None, duration_s=2.0, warmup=20)))
        assert found.requests_per_s == pytest.approx(100, rel=0.02)

    def test_a_stall_is_where_it_was(self) -> None:
        stalled = (0.020, 0.005, 0.405, 0.005)
        smooth = (0.020, 0.005, 0.005, 0.005)
        found = point(drive(CLOSED, delays_s=lambda n: stalled if n % 10 == 0 else smooth))
        assert found.itl_ms.p50 == pytest.approx(5, abs=1e-5)
        assert found.itl_ms.p99 == pytest.approx(405, abs=1e-5)
        assert found.ttft_ms.p99 == pytest.approx(20, abs=1e-5)

    def test_a_slow_server_is_not_excused_by_waiting(self) -> None:
        """Coordinated omission: in an open loop a stall is felt by all that were to come during it."""
        late = point(drive(OPEN, delays_s=lambda n: (1.0 if n == 0 else 0.02, 0.005, 0.005, 0.005)))
        assert late.ttft_from_scheduled_ms.p50 == pytest.approx(20, abs=1e-5)
        assert late.ttft_ms.p99 == pytest.approx(1000, abs=1e-5)


class TestOpenLoop:
    @pytest.mark.parametrize("processes", [1, 2, 4])
    @pytest.mark.parametrize("arrivals", ["constant", "poisson", "gamma"])
    def test_processes_share_one_plan(self, arrivals, processes) -> None:
        level = replace(OPEN, arrivals=arrivals, burstiness=0.5, seed=7, warmup=10)
        parts = [drive(part) for part in parts_of(level, processes)]
        whole = merged(level, parts)
        plan = list(islice(offsets_ns(arrivals, 100.0, 0.5, 7), 60))
        assert [o.scheduled_ns - BEGIN for o in whole.outcomes] == plan
        assert [o.sent_ns for o in whole.outcomes] == [o.scheduled_ns for o in whole.outcomes]
        assert [o.index for o in whole.outcomes] == list(range(60))
        assert sum(o.measured for o in whole.outcomes) == 50
        assert len({(part.opened_ns, part.closed_ns) for part in parts}) == 1
        assert (whole.processes, point(whole).completed) == (processes, 50)

    def test_a_ramp(self) -> None:
        level = replace(OPEN, qps=10.0, ramp=Ramp(to_qps=100.0, seconds=10.0), requests=None, duration_s=10.0)
        times = [(o.scheduled_ns - BEGIN) / 1e9 for o in drive(level).outcomes]
        assert len(times) == pytest.approx(550, abs=2)  # the area under the ramp
        assert sum(t < 5 for t in times) == pytest.approx(162.5, abs=2)
        assert point(drive(level)).steady is None

    def test_a_trace_is_replayed(self) -> None:
        offsets = (0, 5_000_000, 5_000_000, 900_000_000)
        driven = drive(replace(OPEN, arrivals="trace", qps=None, requests=None, offsets_ns=offsets))
        assert [o.scheduled_ns - BEGIN for o in driven.outcomes] == list(offsets)
        assert point(driven).completed == 4

    def test_a_burst_is_at_once(self) -> None:
        driven = drive(replace(OPEN, arrivals="burst", qps=float("inf"), requests=30))
        assert {o.sent_ns for o in driven.outcomes} == {BEGIN}


class TestClosedLoop:
    @pytest.mark.parametrize("processes", [1, 2, 3])
    def test_processes_share_the_users(self, processes) -> None:
        parts = parts_of(replace(CLOSED, concurrency=7), processes)
        assert sum(part.concurrency or 0 for part in parts) == 7
        driven = [drive(part) for part in parts]
        whole = merged(CLOSED, driven)
        assert [o.index for o in whole.outcomes] == list(range(44))
        assert point(whole).completed == 40

    def test_there_are_no_more_processes_than_users(self) -> None:
        assert len(parts_of(replace(CLOSED, concurrency=2), 8)) == 2


class TestSessions:
    @staticmethod
    def three_turns(exchange) -> Prepared | None:
        number = int(exchange.prepared.data) // 1000
        return None if number == 2 else Prepared(data=b"%d" % (int(exchange.prepared.data) + 1000))

    def test_turns_follow_after_the_answer_and_a_pause(self) -> None:
        level = replace(CLOSED, concurrency=1, requests=6, warmup=0, think_time_s=0.5)
        driven = drive(level, follow=self.three_turns)
        outcomes = sorted(driven.outcomes, key=lambda o: o.scheduled_ns)
        assert len(outcomes) == 6
        gaps = [b.sent_ns - a.finished_ns for a, b in pairwise(outcomes)]
        assert [gap > 0 for gap in gaps] == [True, True, False, True, True]

    def test_sessions_of_an_open_loop_begin_on_schedule(self) -> None:
        level = replace(OPEN, requests=5, qps=10.0, think_time_s=0.1)
        driven = drive(level, follow=self.three_turns)
        assert len(driven.outcomes) == 15
        first = {o.index: o.scheduled_ns for o in reversed(driven.outcomes)}
        assert sorted(first.values()) == [BEGIN + round(n * 1e8) for n in range(1, 6)]


class TestOverload:
    SLO = Slo(ttft_ms=30, percentile=90)

    def test_a_level_that_is_lost_ends_early(self) -> None:
        level = replace(OPEN, requests=1000, overload=Overload(slo=self.SLO, planned=1000))
        driven = drive(level, delays_s=lambda n: (0.02 + n * 0.001, 0.0, 0.0, 0.0))
        assert driven.aborted and not driven.interrupted
        assert len(driven.outcomes) + driven.given_up < 300
        assert "requests had already missed a limit" in (driven.stopped or "")

    def test_one_that_meets_its_limits_does_not(self) -> None:
        level = replace(OPEN, requests=200, overload=Overload(slo=self.SLO, planned=200))
        driven = drive(level, delays_s=lambda n: (0.2 if n % 20 == 0 else 0.02, 0.0, 0.0, 0.0))
        assert (driven.aborted, len(driven.outcomes)) == (False, 200)
        assert point(driven, self.SLO).attainment == pytest.approx(0.95)

    def test_requests_in_flight_count_when_their_time_has_passed(self) -> None:
        level = replace(OPEN, requests=100, overload=Overload(slo=Slo(e2e_ms=50, percentile=90), planned=100))
        driven = drive(level, delays_s=lambda _: (60.0, 0.0, 0.0, 0.0))
        assert driven.aborted
        assert not driven.outcomes


def test_time_limits() -> None:
    driven = drive(replace(CLOSED, timeout_s=0.5), delays_s=lambda n: (2.0 if n == 20 else 0.02, 0, 0, 0))
    assert point(driven).errors == {"timeout": 1}

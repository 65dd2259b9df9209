"""Kinds of load from end to end: several processes, sessions, mixes, images, searches, repeated runs."""

import os
import signal
import socket
import threading
import time
from collections import Counter, defaultdict
from dataclasses import replace

import psutil
import pytest

from model_optimizer.bench.options import BenchOptions
from model_optimizer.bench.run import measure
from model_optimizer.bench.target import Target
from model_optimizer.core import HostError, Lengths, Measurement, MoptError, Slo, UsageError, Workload
from model_optimizer.system import piped
from model_optimizer.testing.fake_server import Behaviour, FakeServer

QUICK = Behaviour(ttft_ms=0.5, tpot_ms=0.1)
WORK = Workload(concurrency=4, requests=12, prompt_tokens=Lengths.fixed(20), output_tokens=Lengths.fixed(3))


def bench(server: FakeServer, workload: Workload = WORK, slo: Slo | None = None, **options) -> Measurement:
    api = options.pop("api", None)
    target = Target(url=server.url, vocab_size=1000, api=api)
    return measure(target, workload, slo or Slo(), progress=lambda *_: None, options=BenchOptions(**options))


class TestProcesses:
    def test_a_closed_loop(self) -> None:
        with FakeServer(QUICK) as server:
            found = bench(server, replace(WORK, requests=40), processes=2)
            (point,) = found.points
            asked = [tuple(r.body["prompt"]) for r in server.records]
        assert (point.completed, point.failed, point.client.processes) == (40, 0, 2)
        assert len(set(asked)) == len(asked) == 1 + 4 + 40

    def test_an_open_loop_asks_what_one_process_would(self) -> None:
        work = replace(WORK, concurrency=None, arrivals="poisson", qps=100.0, requests=20)
        asked = []
        for processes in (1, 3):
            with FakeServer(QUICK) as server:
                (point,) = bench(server, work, processes=processes, warmup=5).points
                asked.append(Counter(tuple(r.body["prompt"]) for r in server.records))
            assert (point.completed, point.client.processes) == (20, processes)
        assert asked[0] == asked[1]

    def test_a_member_that_is_killed_ends_the_load(self) -> None:
        """The load was then another one than asked for; and nothing is left running."""
        mine = psutil.Process()
        with FakeServer(replace(QUICK, tpot_ms=2)) as server:

            def kill() -> None:
                while len(server.records) < 30:
                    time.sleep(0.01)
                members = [p for p in mine.children() if "model_optimizer.bench.member" in p.cmdline()]
                assert len(members) == 2
                members[0].kill()

            thread = threading.Thread(target=kill)
            thread.start()
            with pytest.raises(HostError, match="ended early"):
                bench(server, replace(WORK, requests=None), duration_s=60, processes=2)
            thread.join()
        assert not [p for p in mine.children() if "model_optimizer.bench.member" in p.cmdline()]

    def test_ctrl_c_keeps_what_was_measured(self) -> None:
        with FakeServer(replace(QUICK, tpot_ms=2)) as server:

            def interrupt() -> None:
                while len(server.records) < 30:
                    time.sleep(0.01)
                os.kill(os.getpid(), signal.SIGINT)

            thread = threading.Thread(target=interrupt)
            thread.start()
            found = bench(server, replace(WORK, requests=None), duration_s=60, processes=2)
            thread.join()
        assert found.interrupted
        assert found.points[0].completed > 0

    @pytest.mark.parametrize(
        ("work", "options"),
        [
            (
                {"arrivals": "constant", "qps": 20.0, "ramp_to_qps": 60.0, "concurrency": None},
                {"duration_s": 0.5},
            ),
            ({"turns": Lengths.fixed(2), "models": {"a": 1.0, "b": 1.0}}, {}),
            ({"images": ("8x8",)}, {}),
            ({"arrivals": "burst", "qps": float("inf"), "concurrency": None}, {}),
        ],
    )
    def test_any_kind_of_load(self, work, options) -> None:
        with FakeServer(QUICK) as server:
            work = (
                replace(WORK, **work) if "duration_s" not in options else replace(WORK, requests=None, **work)
            )
            (point,) = bench(server, work, processes=2, **options).points
        assert (point.failed, point.client.processes) == (0, 2)
        assert point.completed >= 8

    def test_a_process_that_ends_early_is_told(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(piped.sys, "executable", "/bin/true")
        with FakeServer(QUICK) as server, pytest.raises(HostError, match="ended early"):
            bench(server, processes=2)


class TestSessions:
    def test_a_conversation_grows_by_the_answers(self) -> None:
        # One user: of two, the quicker one may be in the middle of a conversation when the last request is out.
        work = replace(WORK, concurrency=1, requests=12, turns=Lengths.fixed(3))
        with FakeServer(replace(QUICK, echo=True)) as server:
            found = bench(server, work, warmup=0)
            talks = defaultdict(list)
            for record in server.records[1:]:
                talks[record.body["messages"][0]["content"]].append(record.body["messages"])
        assert (found.api, found.points[0].completed) == ("chat", 12)
        assert sorted(len(talk) for talk in talks.values()) == [3, 3, 3, 3]
        for talk in talks.values():
            assert [[m["role"] for m in said] for said in talk] == [
                ["user"],
                ["user", "assistant", "user"],
                ["user", "assistant", "user", "assistant", "user"],
            ]
            asked = talk[0][0]["content"]
            assert talk[1][1]["content"].split() == [asked.split()[-1]] * 3  # what the server really said
            assert talk[2][:3] == talk[1]

    def test_a_failed_turn_ends_its_session(self) -> None:
        work = replace(WORK, concurrency=1, requests=8, turns=Lengths.fixed(100))
        with FakeServer(replace(QUICK, fail_every=4)) as server:
            (point,) = bench(server, work, warmup=0).points
            lengths = [len(r.body["messages"]) for r in server.records[1:]]
        assert point.errors == {"http_5xx": 2}
        assert lengths == [1, 3, 5, 1, 3, 5, 7, 1]

    def test_only_where_one_can_talk(self) -> None:
        with FakeServer(QUICK) as server, pytest.raises(UsageError, match="cannot be held"):
            bench(server, replace(WORK, turns=Lengths.fixed(2)), api="embeddings")


class TestMix:
    def test_each_model_has_its_share_and_its_numbers(self) -> None:
        work = replace(WORK, requests=200, models={"base": 3.0, "adapter": 1.0})
        with FakeServer(replace(QUICK, models=frozenset({"base", "adapter"}))) as server:
            (point,) = bench(server, work).points
            count = Counter(r.body["model"] for r in server.records)
        parts = {part.name: part for part in point.parts}
        assert parts.keys() == {"base", "adapter"}
        assert 0.15 < count["adapter"] / count.total() < 0.35
        assert sum(part.completed for part in point.parts) == point.completed
        assert parts["base"].ttft_ms.p50 is not None

    def test_an_adapter_that_is_missing_fails_for_itself(self) -> None:
        work = replace(WORK, requests=60, models={"base": 1.0, "gone": 1.0})
        with FakeServer(replace(QUICK, models=frozenset({"base"}))) as server:
            (point,) = bench(server, work).points
        parts = {part.name: part for part in point.parts}
        assert parts["base"].failed == 0 and parts["gone"].completed == 0
        assert point.errors.keys() == {"http_4xx"}


class TestImages:
    def test_each_request_carries_its_own(self) -> None:
        with FakeServer(QUICK) as server:
            found = bench(server, replace(WORK, images=("32x16", "8x8")))
            contents = [r.body["messages"][0]["content"] for r in server.records]
        assert found.api == "chat"
        assert found.points[0].completed == 12
        kinds = [[part["type"] for part in content] for content in contents]
        assert set(map(tuple, kinds)) == {("text", "image_url", "image_url")}
        urls = [content[1]["image_url"]["url"] for content in contents]
        assert len(set(urls)) == len(urls)
        assert found.points[0].prompt_tokens_drift is None  # nobody knows what an image counts

    def test_only_in_a_chat(self) -> None:
        with FakeServer(QUICK) as server, pytest.raises(UsageError, match="takes no images"):
            bench(server, replace(WORK, images=("8x8",)), api="completions")


class TestSearch:
    def test_every_level_that_was_tried_is_a_point(self) -> None:
        """Which level is the most is for the virtual clock to say (test_search): here a limit that all meet."""
        work = replace(WORK, concurrency=1, requests=36)
        with FakeServer(QUICK) as server:
            found = bench(server, work, Slo(ttft_ms=60_000, percentile=90), search="max", search_limit=4)
        assert found.capacity is not None
        assert (found.capacity.best, found.capacity.above) == (4, None)
        assert [point.concurrency for point in found.points] == [1, 2, 4]
        assert [trial.level for trial in found.capacity.trials] == [1, 2, 4]

    def test_overload_is_ended_early(self) -> None:
        work = replace(WORK, concurrency=None, arrivals="constant", qps=160.0, requests=60)
        with FakeServer(replace(QUICK, ttft_ms=25, slots=1)) as server:
            found = bench(server, work, Slo(ttft_ms=200, percentile=90), search="max", resolution=7.0)
            asked = len(server.records)
        assert found.capacity is not None
        assert found.capacity.trials[-1].level == 160
        assert found.capacity.trials[-1].aborted
        assert found.capacity.best is None or found.capacity.best <= 80
        assert found.points[-1].aborted
        assert asked < 60 * (len(found.points) + 1)

    def test_it_needs_a_limit_and_one_level(self) -> None:
        with FakeServer(QUICK) as server:
            with pytest.raises(UsageError, match="needs a limit"):
                bench(server, search="max")
            with pytest.raises(UsageError, match="starts from one level"):
                bench(server, search="max", levels=(1, 2), slo=Slo(ttft_ms=5))

    def test_a_sweep(self) -> None:
        work = replace(WORK, concurrency=1, requests=None)
        with FakeServer(replace(QUICK, ttft_ms=20, slots=2)) as server:
            found = bench(server, work, search="sweep", search_limit=16)
        levels = [point.concurrency for point in found.points]
        assert levels == [1, 2, 4, 8, 16][: len(levels)] and len(levels) >= 2
        assert found.pareto and set(found.pareto) <= {point.target for point in found.points}


def test_runs_are_repeated_until_the_interval_is_narrow() -> None:
    with FakeServer(QUICK) as server:
        (point,) = bench(server, until=0.9).points
        assert 3 <= point.runs <= 10  # chance decides how many, in so short ones
        assert point.completed == 12 * point.runs
        assert point.half_widths.keys() == {
            "requests_per_s", "output_tokens_per_s", "ttft_ms", "tpot_ms", "e2e_ms"
        }  # fmt: skip
        before = len(server.records)
        (point,) = bench(server, until=1e-9, most_repeats=4).points
    assert (point.runs, point.resolved) == (4, False)
    asked = [tuple(r.body["prompt"]) for r in server.records[before:]]
    assert len(set(asked)) == len(asked)  # prompts are fresh in every run


def test_the_ceiling_marks_and_invalidates() -> None:
    verdicts = {}
    with FakeServer(QUICK) as server:
        for share, ceiling in (("far", 1e9), ("past", 1e-3)):
            found = bench(server, ceiling_requests_per_s=ceiling)
            verdicts[share] = found.client.verdict
            assert found.client.ceiling_requests_per_s == ceiling
    assert verdicts["past"] == "invalid"
    assert verdicts["far"] in ("valid", "marked")


def test_calibration_comes_after_the_server_has_answered() -> None:
    asked: list[int] = []
    with FakeServer(QUICK) as server:
        target = Target(url=server.url, vocab_size=1000)

        def calibrate() -> float:
            asked.append(len(server.records))
            return 1e9

        found = measure(target, WORK, Slo(), progress=lambda *_: None, calibrate=calibrate)
    assert asked == [1]
    assert found.client.ceiling_requests_per_s == 1e9
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        dead = Target(url=f"http://127.0.0.1:{held.getsockname()[1]}", model="m")
        with pytest.raises(MoptError):
            measure(dead, WORK, Slo(), progress=lambda *_: None, calibrate=calibrate)
    assert asked == [1]


def test_the_clock_of_the_wall_may_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """Times are of a clock that cannot be set; that of the wall is only written down once."""
    steps = iter(range(10_000))
    monkeypatch.setattr(time, "time", lambda: 1e9 - 3600 * next(steps))
    monkeypatch.setattr(time, "time_ns", lambda: 10**18 - 3_600_000_000_000 * next(steps))
    with FakeServer(replace(QUICK, ttft_ms=5)) as server:
        (point,) = bench(server).points
    assert point.completed == 12
    assert 0 < point.window_s < 60
    assert point.ttft_ms.p50 >= 4.5


def test_a_header_that_comes_byte_by_byte() -> None:
    with FakeServer(replace(QUICK, header_drip_ms=0.1)) as server:
        (point,) = bench(server, replace(WORK, requests=4, concurrency=1)).points
    assert (point.completed, point.output_tokens_mean) == (4, 3)
    assert point.ttft_ms.p50 > 5  # some hundred bytes, one by one


def test_a_path_that_is_wrong() -> None:
    with FakeServer(QUICK) as server:
        target = Target(url=server.url, vocab_size=1000, path="/v2/nothing", api="completions")
        with pytest.raises(MoptError) as caught:
            measure(target, WORK, Slo(), progress=lambda *_: None)
    assert "HTTP 404" in " ".join(caught.value.cause)
    assert "/v2/nothing" in " ".join(caught.value.cause)


def test_prompts_may_be_new_in_every_measurement() -> None:
    """A server that caches prefixes would otherwise answer the second measurement from the first one's."""
    with FakeServer(QUICK) as server:
        for contents in (None, None, 5, 6):
            bench(server, replace(WORK, requests=4, concurrency=1), contents=contents, warmup=0)
        asked = [tuple(r.body["prompt"]) for r in server.records]
    runs = [asked[n : n + 5] for n in range(0, 20, 5)]
    assert runs[0] == runs[1]
    assert not set(runs[1]) & set(runs[2]) and not set(runs[2]) & set(runs[3])

"""Soaks: on a virtual clock against made-up servers, where every verdict is exact, and for seconds against
real ones that leak, slow down, or are sound."""

import random
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model_optimizer.bench import soak
from model_optimizer.bench.nothing import NothingCompleted
from model_optimizer.bench.soak.run import Clock
from model_optimizer.bench.soak.trend import slope
from model_optimizer.bench.target import Target
from model_optimizer.core import (
    HostError,
    Lengths,
    LoadPoint,
    Measurement,
    MoptError,
    Percentiles,
    UsageError,
    Workload,
)
from model_optimizer.flow import soak as flow

MIB = 1 << 20
TASK = soak.Task(url="http://x", model=None, load="1 request/s", for_s=72 * 3600, window_s=1800)


class World:
    """Time that passes only when something is done, and a server that is described by functions of hours."""

    def __init__(self, **given) -> None:
        self.now = 0.0
        self.dice = random.Random(1)
        self.latency = given.get("latency", lambda h: 50.0)
        self.rss = given.get("rss", lambda h: 1000.0 * MIB)
        self.gpu = given.get("gpu", lambda h: 40_000.0 * MIB)
        self.files = given.get("files", lambda h: 100.0)
        self.kv = given.get("kv", lambda h: 0.0)
        self.started = given.get("started", lambda h: 1.0)
        self.failing = given.get("failing", lambda h: None)
        self.fatal = given.get("fatal", lambda h: None)
        self.pauses: list[float] = []

    @property
    def hours(self) -> float:
        return self.now / 3600

    def clock(self) -> Clock:
        def sleep(seconds: float) -> None:
            self.pauses.append(seconds)
            self.now += seconds

        return Clock(now=lambda: self.now, wall=lambda: 1e9 + self.now, sleep=sleep)

    def load(self, number: int, seconds: float) -> Measurement:
        error = self.failing(self.hours)
        if error is not None:
            raise error
        self.now += seconds
        value = self.latency(self.hours) * self.dice.uniform(0.95, 1.05)
        point = LoadPoint(
            target="x",
            completed=600,
            failed=0,
            window_s=seconds,
            ttft_ms=Percentiles(p50=value),
            e2e_ms=Percentiles(p50=4 * value),
        )
        return Measurement(points=(point,))

    def look(self) -> soak.Look:
        h, noise = self.hours, self.dice.uniform(-1, 1)
        return soak.Look(
            gpu_memory_bytes=self.gpu(h),
            server_rss_bytes=self.rss(h) + noise * 3 * MIB,
            open_files=self.files(h) + round(noise),
            kv_usage=self.kv(h),
            started_s=self.started(h),
            fatal=self.fatal(h),
        )


def soaked(folder: Path, world: World, task: soak.Task = TASK) -> soak.Soak:
    journal = soak.Journal.create(folder, task)
    return soak.run(journal, load=world.load, look=world.look, progress=lambda *_: None, clock=world.clock())


def judgement(found: soak.Soak, quantity: str) -> str:
    return next(t.judgement for t in found.trends if t.quantity.startswith(quantity))


class TestVerdicts:
    def test_a_sound_server_is_sound_after_three_days(self, tmp_path: Path) -> None:
        found = soaked(tmp_path, World())
        assert found.outcome == "sound" and found.finished
        assert (found.windows, found.hours) == (144, 72)
        assert {t.judgement for t in found.trends} == {"level"}

    @pytest.mark.parametrize(
        ("given_", "quantity"),
        [
            ({"rss": lambda h: (1000 + 2 * h) * MIB}, "server memory"),
            ({"gpu": lambda h: (40_000 + 10 * h) * MIB}, "GPU memory"),
            ({"files": lambda h: 100 + 0.5 * h}, "open files"),
            ({"kv": lambda h: 0.001 * h}, "KV cache"),
        ],
    )
    def test_each_kind_of_leak_is_found(self, tmp_path: Path, given_: dict, quantity: str) -> None:
        found = soaked(tmp_path, World(**given_))
        assert found.outcome == "leaks"
        assert judgement(found, quantity) == "rises"
        assert sum(t.judgement == "rises" for t in found.trends) == 1
        assert found.because[0].startswith(quantity)

    def test_the_slope_is_what_leaks(self, tmp_path: Path) -> None:
        found = soaked(tmp_path, World(rss=lambda h: (1000 + 2 * h) * MIB))
        (rss,) = (t for t in found.trends if "RSS" in t.quantity)
        assert rss.interval is not None and rss.interval[0] < 2 * MIB < rss.interval[1]
        assert rss.slope_per_h == pytest.approx(2 * MIB, rel=0.02)

    def test_one_that_slows_down_degrades(self, tmp_path: Path) -> None:
        found = soaked(tmp_path, World(latency=lambda h: 50 * (1 + h / 100)))
        assert found.outcome == "degrades"
        assert judgement(found, "time to first token") == "rises"

    def test_a_cache_that_fills_up_and_stays_full_is_no_leak(self, tmp_path: Path) -> None:
        found = soaked(tmp_path, World(rss=lambda h: (1000 + 300 * min(1, h / 30)) * MIB))
        assert judgement(found, "server memory") == "level"
        assert found.outcome == "sound"

    def test_a_restart_hides_no_leak_and_is_told(self, tmp_path: Path) -> None:
        """Memory falls at a restart: the leak shows in the stretch between two of them."""
        world = World(
            rss=lambda h: (1000 + 20 * (h - (30 if h > 30 else 0))) * MIB,
            started=lambda h: 5e4 if h > 30 else 1.0,
        )
        found = soaked(tmp_path, world)
        assert (found.outcome, found.restarts) == ("leaks", 1)

    def test_a_restart_alone_is_unstable(self, tmp_path: Path) -> None:
        found = soaked(tmp_path, World(started=lambda h: 5e4 if h > 30 else 1.0))
        assert found.outcome == "unstable"
        assert "began again 1 time" in found.because[0]

    def test_a_few_minutes_settle_nothing(self, tmp_path: Path) -> None:
        found = soaked(tmp_path, World(), replace(TASK, for_s=3600))
        assert found.outcome == "undecided"

    def test_a_sensor_that_is_not_there_is_no_verdict(self, tmp_path: Path) -> None:
        found = soaked(tmp_path, World(gpu=lambda h: None))
        assert judgement(found, "GPU memory") == "not available"
        assert found.outcome == "sound"

    def test_a_gpu_error_ends_it_and_nothing_counts(self, tmp_path: Path) -> None:
        found = soaked(tmp_path, World(fatal=lambda h: "Xid 79: the GPU fell off the bus" if h > 5 else None))
        assert (found.outcome, found.finished) == ("invalid", False)
        assert found.hours < 6


class TestTroubles:
    def test_a_server_that_goes_away_is_waited_for_and_not_hammered(self, tmp_path: Path) -> None:
        gone = HostError("no server can be reached", cause=("refused",))
        world = World(failing=lambda h: gone if 10 < h < 12 else None)
        found = soaked(tmp_path, world)
        assert found.finished and found.outcome == "unstable"
        assert 150 < found.unreachable_windows < 260  # half a minute between two tries
        assert max(world.pauses) == 30
        assert found.errors == {"connect": found.unreachable_windows}

    def test_errors_keep_their_kind_when_nothing_completed(self, tmp_path: Path) -> None:
        bad = NothingCompleted("none", errors={"http_5xx": 7}, examples={"http_5xx": "9 x timeout, told to"})

        world = World(failing=lambda h: bad if 0.4 < h < 0.6 else None)
        found = soaked(tmp_path, world, replace(TASK, for_s=7200))
        assert set(found.errors) == {"http_5xx"} and found.errors["http_5xx"] % 7 == 0
        assert found.examples == {"http_5xx": "9 x timeout, told to"}
        assert world.pauses[:3] == [1, 2, 4]

    def test_a_window_into_which_no_request_fell_is_empty_and_no_failure(self, tmp_path: Path) -> None:
        world = World()
        load, none = world.load, NothingCompleted("none", errors={}, examples={})

        def loading(number: int, seconds: float) -> Measurement:
            found = load(number, seconds)
            if number % 3 == 0:
                raise none
            return found

        world.load = loading
        found = soaked(tmp_path, world)
        assert (found.outcome, found.failed, found.errors) == ("sound", 0, {})
        assert world.pauses == []

    def test_a_short_rest_at_the_end_is_no_window(self, tmp_path: Path) -> None:
        found = soaked(tmp_path, World(), replace(TASK, for_s=3 * 1800 + 100))
        assert (found.windows, found.finished) == (3, True)

    @pytest.mark.parametrize("error", [HostError("gone"), UsageError("no URL"), MoptError("refused")])
    def test_what_is_wrong_from_the_start_is_raised(self, tmp_path: Path, error: MoptError) -> None:
        with pytest.raises(type(error)):
            soaked(tmp_path, World(failing=lambda h: error))

    def test_it_stops_by_itself_at_its_end(self, tmp_path: Path) -> None:
        world = World()
        soaked(tmp_path, world, replace(TASK, for_s=4500))
        assert world.now == 4500

    def test_ctrl_c_keeps_what_there_is(self, tmp_path: Path) -> None:
        def failing(h: float):
            return KeyboardInterrupt() if h > 3 else None

        found = soaked(tmp_path, World(failing=failing))
        assert not found.finished and 6 <= found.windows <= 8


class TestJournal:
    def test_a_resumed_soak_goes_on_where_it_was(self, tmp_path: Path) -> None:
        world = World(failing=lambda h: KeyboardInterrupt() if h > 3 else None)
        soaked(tmp_path, world)
        world.failing = lambda h: None
        world.now += 7200  # it was down for two hours
        journal = soak.Journal.reopen(tmp_path, TASK)
        found = soak.run(
            journal, load=world.load, look=world.look, progress=lambda *_: None, clock=world.clock()
        )
        assert found.finished
        assert found.hours == pytest.approx(72, abs=0.01)
        gaps = [b.at_s - a.at_s for a, b in zip(journal.windows, journal.windows[1:], strict=False)]
        assert sum(g > 7000 for g in gaps) == 1

    def test_a_clock_that_was_set_back_does_not_lengthen_it(self, tmp_path: Path) -> None:
        world = World(failing=lambda h: KeyboardInterrupt() if h > 3 else None)
        soaked(tmp_path, world)
        world.failing = lambda h: None
        journal = soak.Journal.reopen(tmp_path, TASK)
        clock = replace(world.clock(), wall=lambda: 0.0)
        found = soak.run(journal, load=world.load, look=world.look, progress=lambda *_: None, clock=clock)
        assert found.hours == pytest.approx(72, abs=0.6)

    def test_a_line_that_was_cut_off_costs_one_window(self, tmp_path: Path) -> None:
        soaked(tmp_path, World(), replace(TASK, for_s=18000))
        file = tmp_path / "soak.jsonl"
        whole = file.read_bytes()
        file.write_bytes(whole[:-20])
        journal = soak.Journal.reopen(tmp_path)
        assert len(journal.windows) == 9
        journal.append(soak.SoakWindow(number=9, at_s=16200, wall_s=1, seconds=1800))
        assert len(soak.Journal.reopen(tmp_path).windows) == 10

    def test_another_soak_is_not_mixed_in(self, tmp_path: Path) -> None:
        soak.Journal.create(tmp_path, TASK)
        journal = soak.Journal.create(tmp_path, TASK)  # nothing is in it yet
        journal.append(soak.SoakWindow(number=0, at_s=0, wall_s=1, seconds=1800))
        with pytest.raises(UsageError, match="holds a soak already"):
            soak.Journal.create(tmp_path, TASK)
        with pytest.raises(UsageError, match="something else") as caught:
            soak.Journal.reopen(tmp_path, replace(TASK, load="2 requests/s"))
        assert caught.value.cause == ("load: 1 request/s there, 2 requests/s asked",)

    @pytest.mark.parametrize("content", [b"", b"{}\n", b"\xff\xfe\n", b"[1]\nnot json\n"])
    def test_what_is_no_journal_is_said_to_be_none(self, tmp_path: Path, content: bytes) -> None:
        (tmp_path / "soak.jsonl").write_bytes(content)
        with pytest.raises(UsageError):
            soak.Journal.reopen(tmp_path)

    def test_a_folder_without_one(self, tmp_path: Path) -> None:
        with pytest.raises(UsageError, match="holds no soak"):
            soak.Journal.reopen(tmp_path / "none")

    def test_a_full_disk_is_said_and_leaves_whole_lines(self, tmp_path: Path) -> None:
        soak.Journal.create(tmp_path, TASK)
        path = Path("/dev/full")
        journal = soak.Journal(path, TASK, [])
        with pytest.raises(HostError, match="full"):
            journal.append(soak.SoakWindow(number=0, at_s=0, wall_s=0, seconds=1))


class TestSlope:
    def test_noise_alone_has_an_interval_around_zero(self) -> None:
        dice = random.Random(3)
        inside = 0
        for _ in range(200):
            times = [float(i) for i in range(40)]
            _, (low, high) = slope(times, [dice.gauss(0, 1) for _ in times])
            inside += low <= 0 <= high
        assert inside >= 180

    def test_neighbours_that_depend_on_each_other_widen_it(self) -> None:
        """A wandering level must not pass for a slope more often than it should by far."""
        dice = random.Random(4)
        wrong = 0
        for _ in range(100):
            value, values = 0.0, []
            for _ in range(60):
                value = 0.6 * value + dice.gauss(0, 1)
                values.append(value)
            _, (low, high) = slope([float(i) for i in range(60)], values)
            wrong += not low <= 0 <= high
        assert wrong <= 15

    def test_outliers_do_not_move_it(self) -> None:
        times = [float(i) for i in range(50)]
        values = [2.0 * t for t in times]
        values[10] = values[30] = 1e9
        assert slope(times, values)[0] == pytest.approx(2.0)

    @given(st.lists(st.floats(-1e9, 1e9), min_size=3, max_size=40), st.floats(-100, 100))
    def test_a_straight_line_that_is_added_comes_out(self, values: list[float], added: float) -> None:
        times = [float(i) for i in range(len(values))]
        before, _ = slope(times, values)
        after, _ = slope(times, [v + added * t for t, v in zip(times, values, strict=True)])
        assert after == pytest.approx(before + added, abs=1e-3)


@contextmanager
def server(*options: str) -> Iterator[tuple[str, int]]:
    """A server of its own process: URL and process id."""
    command = [sys.executable, "-m", "model_optimizer.testing.soak_server", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        url = process.stdout.readline().split()[-1]
        try:
            yield url, process.pid
        finally:
            process.kill()


def real(url: str, folder: Path, *, for_s: float = 8.0, pid: int | None = None, **more) -> soak.Soak:
    work = Workload(
        arrivals="constant", qps=20, prompt_tokens=Lengths.fixed(8), output_tokens=Lengths.fixed(2)
    )
    return flow.run_soak(
        Target(url=url, api="completions"),
        work,
        for_s=for_s,
        window_s=0.25,
        folder=folder,
        pid=pid,
        progress=lambda *_: None,
        **more,
    )


class TestRealServers:
    """Seconds instead of days; the leaks are as much larger, so that no timing decides."""

    def test_one_that_keeps_memory_and_files_leaks(self, tmp_path: Path) -> None:
        with server("--leak-bytes", "1000000", "--leak-files", "1", "--leak-kv", "0.002") as (url, _):
            found = real(url, tmp_path)
        assert found.outcome == "leaks" and found.finished
        for quantity in ("server memory", "open files", "KV cache"):
            assert judgement(found, quantity) == "rises"
        assert (tmp_path / "soak.json").exists()
        assert flow.answer(tmp_path).outcome == "leaks"

    def test_one_that_slows_down_degrades(self, tmp_path: Path) -> None:
        with server("--slower-ms", "1") as (url, _):
            found = real(url, tmp_path)
        assert found.outcome == "degrades"
        assert judgement(found, "server memory") != "rises"

    def test_a_sound_one_is_accused_of_nothing(self, tmp_path: Path) -> None:
        with server("--ttft-ms", "60") as (url, pid):
            found = real(url, tmp_path, pid=pid)
        assert found.outcome in ("sound", "undecided")
        assert {judgement(found, q) for q in ("server memory", "open files", "KV cache")} == {"level"}

    def test_one_that_fails_now_and_then_is_unstable(self, tmp_path: Path) -> None:
        with server("--ttft-ms", "60", "--fail-every", "10") as (url, _):
            found = real(url, tmp_path, for_s=3)
        assert found.outcome == "unstable"
        assert set(found.errors) == {"http_5xx"}
        assert "told to fail" in found.examples["http_5xx"]

    def test_one_that_dies_is_missed(self, tmp_path: Path) -> None:
        with server("--die-after", "15") as (url, _):
            found = real(url, tmp_path, for_s=4)
        assert found.outcome == "unstable" and found.finished
        assert found.unreachable_windows >= 1
        assert "connect" in found.errors

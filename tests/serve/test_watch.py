"""A server that dies, hangs or comes back, with a clock that the test turns."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from model_optimizer.core import MoptError, ToolError, UsageError
from model_optimizer.serve.watch import Outside, Restart, watch

FOREVER = 10.0**9


class Played:
    """A server whose life is a script: when it dies, with which code, and when it does not answer."""

    def __init__(
        self,
        clock: "Clock",
        *,
        lives_s: float,
        code: int = 1,
        silent: tuple[float, float] = (0, 0),
        log: tuple[str, ...] = ("last words",),
    ) -> None:
        self._log = log
        self._clock, self._born = clock, clock.time
        self._lives, self._code, self._silent = lives_s, code, silent
        self.served_name, self.log, self.pid, self.stopped = "m", Path("/tmp/m.log"), 7, False

    def age(self) -> float:
        return self._clock.time - self._born

    def alive(self) -> bool:
        return not self.stopped and self.age() < self._lives

    @property
    def code(self) -> int | None:
        return None if self.alive() else (-15 if self.stopped and self.age() < self._lives else self._code)

    def answers(self) -> bool:
        return not self._silent[0] <= self.age() < self._silent[1]

    def why_ended(self) -> ToolError:
        return ToolError("`m` ended", cause=(f"exit code {self._code}",))

    def log_tail(self, lines: int = 20) -> tuple[str, ...]:
        return self._log

    def __enter__(self) -> "Played":
        return self

    def __exit__(self, *_: object) -> None:
        self.stopped = True


class Clock:
    def __init__(self) -> None:
        self.time = 0.0
        self.said: list[str] = []
        self.pauses: list[float] = []

    def sleep(self, seconds: float) -> None:
        if seconds >= 1:
            self.pauses.append(seconds)
        self.time += seconds

    def outside(self, **more: Any) -> Outside:
        return Outside(
            say=self.said.append,
            healthy=lambda s: s.answers(),  # type: ignore[attr-defined]
            now=lambda: self.time,
            sleep=self.sleep,
            **{"free_bytes": lambda _: None, **more},
        )


def run(
    clock: Clock, lives: "list[Callable[[], Played]]", restart: Restart, **more: Any
) -> tuple[MoptError, list[Played]]:
    made: list[Played] = []

    def again() -> Any:
        made.append(lives[len(made)]())
        return made[-1]

    return watch(again(), again, restart, clock.outside(**more)), made


def test_a_death_without_restart_is_the_error_itself() -> None:
    clock = Clock()
    error, made = run(clock, [lambda: Played(clock, lives_s=3)], Restart())
    assert error.message == "`m` ended"
    assert made[0].stopped
    assert clock.said == []


def test_a_crash_loop_ends_with_one_error_and_pauses_grow() -> None:
    clock = Clock()
    error, made = run(clock, [lambda: Played(clock, lives_s=3)] * 4, Restart(most=3))
    assert len(made) == 4
    assert clock.pauses == [1.0, 2.0, 4.0]
    assert error.reference == "crash-loop"
    assert error.message == "it failed 4 times in a row and is not started again"
    assert error.cause[0] == "4 times: `m` ended: exit code 1"
    assert clock.said[0] == "`m` ended: exit code 1; start 1 of 3 in 1 s"
    assert all(server.stopped for server in made)


def test_the_pause_has_an_end() -> None:
    assert [Restart(most=9).pause_s(n) for n in (1, 6, 7, 60)] == [1.0, 32.0, 60.0, 60.0]


def test_a_long_life_is_forgiven() -> None:
    clock = Clock()
    lives = [lambda: Played(clock, lives_s=700)] * 3 + [lambda: Played(clock, lives_s=1)] * 2
    error, made = run(clock, lives, Restart(most=1))
    assert error.reference == "crash-loop"
    assert len(made) == 4  # three long lives with one start each, then two failures in a row


def test_who_was_told_to_end_is_not_started_again() -> None:
    clock = Clock()
    _error, made = run(clock, [lambda: Played(clock, lives_s=3, code=0)], Restart(most=3))
    assert len(made) == 1


# What vLLM 0.32 wrote on a CPU when its engine process was killed under load; it ended with exit code 0.
ENGINE_DIED = (
    "(APIServer pid=12199) WARNING 11-30 20:58:32 [core_client.py:817] [shutdown] MPClient: engine core exited "
    "unexpectedly; starting cleanup",
    "(APIServer pid=12199) ERROR 11-30 20:58:32 [async_llm.py:906] vllm.v1.engine.exceptions.EngineDeadError: "
    "EngineCore encountered an issue. See stack trace (above) for the root cause.",
    "INFO:     Application shutdown complete.",
    "INFO:     Finished server process [12199]",
)


def test_an_engine_that_died_behind_a_polite_server_is_started_again() -> None:
    clock = Clock()
    lives = [
        lambda: Played(clock, lives_s=3, code=0, log=ENGINE_DIED),
        lambda: Played(clock, lives_s=3, code=0),
    ]
    _error, made = run(clock, lives, Restart(most=1))
    assert len(made) == 2


def test_a_start_that_fails_counts_and_is_tried_again() -> None:
    clock = Clock()

    def refuses() -> Played:
        raise ToolError("no start", cause=("no memory",))

    lives = [lambda: Played(clock, lives_s=3), refuses, lambda: Played(clock, lives_s=3, code=0)]
    calls: list[int] = []

    def again() -> Any:
        calls.append(1)
        return lives[len(calls)]()

    found = watch(lives[0](), again, Restart(most=2), clock.outside())  # type: ignore[arg-type]
    assert len(calls) == 2
    assert found.cause == ("exit code 0",)
    assert "no start: no memory; start 2 of 2" in clock.said[1]


def test_a_server_that_hangs_is_stopped_and_started_again() -> None:
    clock = Clock()
    lives = [
        lambda: Played(clock, lives_s=FOREVER, silent=(20, FOREVER)),
        lambda: Played(clock, lives_s=3, code=0),
    ]
    _error, made = run(clock, lives, Restart(most=1))
    assert made[0].stopped
    assert "alive but has not answered for 60 s" in clock.said[0]
    assert clock.time < 200


def test_without_restart_a_silent_server_is_said_once_and_left_alone() -> None:
    clock = Clock()
    error, _made = run(clock, [lambda: Played(clock, lives_s=400, silent=(20, 200))], Restart())
    assert [text.split(";")[0] for text in clock.said] == [
        "m has not answered for 60 s",
        "m answers again",
    ]
    assert error.message == "`m` ended"


def test_a_short_silence_is_nothing() -> None:
    clock = Clock()
    run(clock, [lambda: Played(clock, lives_s=400, silent=(20, 60))], Restart())
    assert clock.said == []


def test_a_disk_that_fills_up_is_said_once() -> None:
    clock = Clock()
    run(clock, [lambda: Played(clock, lives_s=60)], Restart(), free_bytes=lambda _: 1000)
    assert clock.said == ["the disk that holds /tmp/m.log has 0.977 KiB left: the log will be cut off"]


def test_causes_are_explained_before_they_are_said() -> None:
    clock = Clock()

    def explain(error: MoptError, _server: object) -> MoptError:
        return ToolError(error.message, cause=("cuda-oom: the GPU is full",))

    error, _made = run(clock, [lambda: Played(clock, lives_s=3)] * 2, Restart(most=1), explain=explain)
    assert "cuda-oom" in clock.said[0]
    assert error.cause[0] == "2 times: `m` ended: cuda-oom: the GPU is full"


@pytest.mark.parametrize(("text", "most"), [("no", 0), ("on-failure", 5), ("on-failure:2", 2)])
def test_words_of_restart(text: str, most: int) -> None:
    assert Restart.parse(text).most == most


@pytest.mark.parametrize("text", ["always", "on-failure:", "on-failure:0", "on-failure:x", "no:3", ""])
def test_other_words_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="is not known"):
        Restart.parse(text)

"""Watch a server: its health, its end, and, where that was asked for, another start after a pause.

A server that ended because it was told to (exit code 0, no error in its log) is not started again. Starts
that fail count like deaths, and those that lived long enough are forgiven: a crash loop ends with one error.
"""

import re
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from model_optimizer.core import MoptError, ToolError, UsageError
from model_optimizer.core.units import show_bytes
from model_optimizer.system import files, local_http

from .cause import raised
from .handle import LINES_FOR_CAUSE, ServerHandle

POLL_S = 0.5
HEALTH_EVERY_S = 5.0
HEALTH_WAIT_S = 5.0
SILENT_S = 60.0
"""A server that answers nothing for so long hangs. ASSUMED."""

STEADY_S = 600.0
"""One that lived so long did not die of its start. ASSUMED."""

FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 60.0
TRIES = 5
LEAST_DISK_BYTES = 64 * 2**20
"""Below this a server's log will soon be cut off."""

WORDS = ("no", "on-failure")


@dataclass(frozen=True, slots=True, kw_only=True)
class Restart:
    """How often in a row a server that failed is started again."""

    most: int = 0

    @classmethod
    def parse(cls, text: str) -> "Restart":
        """`no`, `on-failure`, `on-failure:3`. Raises UsageError."""
        word, colon, count = text.partition(":")
        if word == "no" and not colon:
            return cls()
        if word == "on-failure" and (not colon or re.fullmatch("[1-9][0-9]{0,5}", count)):
            return cls(most=int(count) if colon else TRIES)
        raise UsageError(f"`--restart {text}` is not known", hint=("write no, on-failure, or on-failure:3",))

    def pause_s(self, failures: int) -> float:
        """How long to wait after so many failures in a row."""
        return min(FIRST_PAUSE_S * 2 ** min(failures - 1, 64), LONGEST_PAUSE_S)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outside:
    """What `watch` is handed: where it says something, how an error is explained, the clock."""

    say: Callable[[str], None]
    explain: Callable[[MoptError, ServerHandle | None], MoptError] = field(
        default=lambda error, _server: error
    )
    healthy: Callable[[ServerHandle], bool] | None = None
    free_bytes: Callable[[Path], int | None] = files.free_bytes
    now: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep


def watch(
    server: ServerHandle, again: Callable[[], ServerHandle], restart: Restart, outside: Outside
) -> MoptError:
    """Until the server ended and is not started again. Why it ended; nothing is left running.

    `again` starts it once more and raises MoptError when that fails.
    """
    failures = 0
    causes: Counter[str] = Counter()
    current: ServerHandle | None = server
    error: MoptError = ToolError("it did not start")
    while True:
        begun = outside.now()
        if current is not None:
            with current:
                error = _until_it_fails(current, restart, outside)
            code = current.code
            error = outside.explain(error, current)
            if code == 0 and error.reference != "hung" and not _failed_quietly(current):
                return error
            if outside.now() - begun >= STEADY_S:
                failures, causes = 0, Counter[str]()
        failures += 1
        causes[_short(error)] += 1
        if failures > restart.most:
            return error if restart.most == 0 else _loop(error, failures, causes)
        pause = restart.pause_s(failures)
        outside.say(f"{_short(error)}; start {failures} of {restart.most} in {pause:g} s")
        outside.sleep(pause)
        try:
            current = again()
        except MoptError as failed:
            current, error = None, outside.explain(failed, None)


def _until_it_fails(server: ServerHandle, restart: Restart, outside: Outside) -> MoptError:
    healthy = outside.healthy or _answers
    answered = asked = outside.now()
    silent = low = False
    while server.alive():
        now = outside.now()
        if now - asked >= HEALTH_EVERY_S:
            asked = now
            if healthy(server):
                if silent:
                    outside.say(f"{server.served_name} answers again")
                answered, silent = outside.now(), False
            low = low or _disk(server.log, outside)
        if now - answered >= SILENT_S and not silent:
            silent = True
            if restart.most:
                return _hung(server)
            outside.say(
                f"{server.served_name} has not answered for {SILENT_S:.0f} s; "
                f"`mopt diagnose {server.log} --pid {server.pid}` looks into it"
            )
        outside.sleep(POLL_S)
    return server.why_ended()


def _answers(server: ServerHandle) -> bool:
    reply = local_http.ask(server.url + server.ready_path, timeout_s=HEALTH_WAIT_S)
    return reply is not None and reply.status == 200


def _disk(log: Path, outside: Outside) -> bool:
    """Whether the disk of the log is nearly full; said once."""
    free = outside.free_bytes(log)
    if free is None or free >= LEAST_DISK_BYTES:
        return False
    outside.say(f"the disk that holds {log} has {show_bytes(free)} left: the log will be cut off")
    return True


def _failed_quietly(server: ServerHandle) -> bool:
    """vLLM ends with exit code 0, too, when its engine died: only the log tells."""
    return bool(raised(server.log_tail(LINES_FOR_CAUSE)))


def _hung(server: ServerHandle) -> ToolError:
    return ToolError(
        f"{server.served_name} is alive but has not answered for {SILENT_S:.0f} s, it was stopped",
        cause=server.log_tail(4),
        hint=(f"the whole log: {server.log}",),
        reference="hung",
    )


def _loop(error: MoptError, failures: int, causes: Counter[str]) -> MoptError:
    """One error for all of them."""
    counted = tuple(f"{count} times: {text}" for text, count in causes.most_common() if count > 1)
    once = tuple(text for text, count in causes.items() if count == 1)
    return type(error)(
        f"it failed {failures} times in a row and is not started again",
        cause=(*counted, *once, *error.cause[:3]),
        hint=error.hint,
        reference="crash-loop",
    )


def _short(error: MoptError) -> str:
    return ": ".join((error.message, *error.cause[:1]))[:300]

"""The loop: a window of load, a look at the idle server, a line in the journal; until the time is up."""

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from model_optimizer.bench.nothing import NothingCompleted
from model_optimizer.core import HostError, LoadPoint, Measurement, MoptError, Progress

from .journal import Journal
from .nouns import Look, Soak, SoakWindow
from .verdict import judge

Load = Callable[[int, float], Measurement]
"""(number of the window, its seconds) -> what was measured. It may raise what `bench.run.measure` raises."""

_LONGEST_PAUSE_S = 30.0
_FIRST_PAUSE_S = 1.0
_REST = 0.2  # of a window: what is shorter at the end is left out


@dataclass(frozen=True, slots=True, kw_only=True)
class Clock:
    """Time as the soak sees it: `now` never steps back, `wall` is the time of day (Unix)."""

    now: Callable[[], float] = time.monotonic
    wall: Callable[[], float] = time.time
    sleep: Callable[[float], None] = time.sleep


def run(
    journal: Journal,
    *,
    load: Load,
    look: Callable[[], Look],
    progress: Progress,
    clock: Clock | None = None,
    each: Callable[[SoakWindow], None] | None = None,
) -> Soak:
    """Go on until the length of the task is reached, a GPU fails, or Ctrl-C is pressed.

    A server that goes away is waited for, with pauses: it is never asked in a busy loop. What fails in the
    very first window is raised as it is (a wrong address, a missing key, a server that is not there yet).
    `each` is called after every window. HostError when the journal cannot be written.
    """
    clock = clock or Clock()
    task = journal.task
    begun = clock.now() - _already(journal, clock)
    pause_s = 0.0
    with suppress(KeyboardInterrupt):  # wherever it strikes, what is in the journal stays
        while task.for_s - (at := clock.now() - begun) > _REST * task.window_s:
            seconds = min(task.window_s, task.for_s - at)
            progress("soaking", at / task.for_s)
            number, wall = len(journal.windows), clock.wall()
            base = SoakWindow(number=number, at_s=at, wall_s=wall, seconds=seconds)
            window, interrupted = _window(base, load, look, first=not journal.windows)
            window = _noticed(window, journal.windows)
            journal.append(window)
            if each is not None:
                each(window)
            if interrupted or window.look.fatal:
                break
            failing = window.failed > 0 and not window.completed
            pause_s = min(_LONGEST_PAUSE_S, 2 * pause_s or _FIRST_PAUSE_S) if failing else 0.0
            if pause_s:
                clock.sleep(min(pause_s, max(0.0, task.for_s - (clock.now() - begun))))
    finished = task.for_s - (clock.now() - begun) <= _REST * task.window_s
    return judge(task, journal.windows, finished=finished)


def _already(journal: Journal, clock: Clock) -> float:
    """Seconds that have passed since the soak began, the time in which it was down included; a clock that
    was set back cannot make it negative."""
    if not journal.windows:
        return 0.0
    last = journal.windows[-1]
    ended = last.at_s + last.seconds
    return ended + max(0.0, clock.wall() - last.wall_s - last.seconds)


def _window(
    base: SoakWindow, load: Load, look: Callable[[], Look], *, first: bool
) -> tuple[SoakWindow, bool]:
    """One window, and whether Ctrl-C ended the load in it early."""
    try:
        found = load(base.number, base.seconds)
    except MoptError as error:
        if isinstance(error, NothingCompleted) and not error.errors:  # no request fell into this window
            return replace(base, look=look()), False
        if first:
            raise
        gone = isinstance(error, HostError)
        return _failed(base, error, unreachable=gone, look=Look() if gone else look()), False
    return _measured(base, found.points[0], look()), found.interrupted


def _measured(base: SoakWindow, point: LoadPoint, look: Look) -> SoakWindow:
    return SoakWindow(
        number=base.number,
        at_s=base.at_s,
        wall_s=base.wall_s,
        seconds=base.seconds,
        completed=point.completed,
        failed=point.failed,
        errors=point.errors,
        examples=point.error_examples,
        requests_per_s=point.requests_per_s,
        ttft_p50_ms=point.ttft_ms.p50,
        ttft_p99_ms=point.ttft_ms.p99,
        tpot_p50_ms=point.tpot_ms.p50,
        e2e_p50_ms=point.e2e_ms.p50,
        e2e_p99_ms=point.e2e_ms.p99,
        look=look,
    )


def _failed(base: SoakWindow, error: MoptError, *, unreachable: bool, look: Look) -> SoakWindow:
    """No request completed: how many failed is in the error, or it is one that could not even ask."""
    if isinstance(error, NothingCompleted):
        errors, examples = dict(error.errors), {k: v[:300] for k, v in error.examples.items()}
    else:
        kind = "connect" if unreachable else "wrong_content"
        errors, examples = {kind: 1}, {kind: "; ".join((error.message, *error.cause))[:300]}
    return SoakWindow(
        number=base.number,
        at_s=base.at_s,
        wall_s=base.wall_s,
        seconds=base.seconds,
        failed=sum(errors.values()),
        errors=errors,
        examples=examples,
        unreachable=unreachable,
        look=look,
    )


def _noticed(window: SoakWindow, before: Sequence[SoakWindow]) -> SoakWindow:
    """Mark a restart: the server's process began later than the one that was last seen."""
    known = [w.look.started_s for w in before if w.look.started_s is not None]
    now = window.look.started_s
    restarted = now is not None and bool(known) and now > known[-1] + 1
    return replace(window, restarted=True) if restarted else window

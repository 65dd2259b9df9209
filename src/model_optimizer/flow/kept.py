"""Servers of a study that never outlive it: not after an error, not after Ctrl-C, not after a second one.

What was started is also written down, so that what a killed process left behind is ended by the next one.
"""

import os
import signal
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self

from model_optimizer.core import Launch, MoptError, codec
from model_optimizer.serve import StartProcess
from model_optimizer.system import files, processes
from model_optimizer.system.processes import Running

GRACE_S = 12.0
FOLDER = "servers"


@dataclass(frozen=True, slots=True, kw_only=True)
class Begun:
    """One server by the number of its process and the kernel's start time, which no later process has."""

    pid: int
    started_at: float


Watching = Callable[[StartProcess], StartProcess]
"""How processes are started, so that somebody knows of them."""


class GivenUp(BaseException):
    """In the thread of a start: nothing more is to be started."""


class Kept:
    """What is started by it is stopped when the block ends. `records` is a folder, None for no records."""

    def __init__(self, records: Path | None = None) -> None:
        self._records = records
        self._lock = threading.Lock()
        self._running: list[Running] = []
        self._closed = False

    def watching(self, begin: StartProcess) -> StartProcess:
        """`begin`, whose processes are kept; refused when the block has ended meanwhile."""
        return partial(self._start, begin)

    def _start(self, begin: StartProcess, launch: Launch, log: Path) -> Running:
        with self._lock:
            if self._closed:
                raise GivenUp
            running = begin(launch, log)
            self._running.append(running)
        if self._records is not None:
            begun = Begun(pid=running.pid, started_at=running.started_at)
            with suppress(MoptError):  # a full disk must not stop the study here: it is said elsewhere
                files.write_atomic(self._records / f"{running.pid}.json", codec.dumps(begun))
        return running

    def close(self) -> None:
        """Stop all of them, at once; another Ctrl-C makes it quicker, not less."""
        with self._lock:
            self._closed = True
            running = [r for r in self._running if r.poll() is None or r.family()]
        with unbroken(running):
            stop_all(running)
            for found in self._running:
                if self._records is not None:
                    (self._records / f"{found.pid}.json").unlink(missing_ok=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def stop_all(running: list[Running]) -> None:
    """Stop servers side by side: each may take its whole grace."""
    threads = [threading.Thread(target=r.stop, kwargs={"grace_s": GRACE_S}) for r in running]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


@contextmanager
def unbroken(running: list[Running]) -> Generator[None]:
    """While inside, Ctrl-C and a polite end kill these at once and do not break off their stopping."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def at_once(_signal: int, _frame: object) -> None:
        for found in running:
            with suppress(OSError):
                os.killpg(found.pid, signal.SIGKILL)

    before = {number: signal.signal(number, at_once) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def sweep(records: Path) -> int:
    """End the servers that a killed process left behind; how many there were."""
    left: list[Running] = []
    for path in sorted(records.glob("*.json")):
        with suppress(MoptError, OSError):
            if (found := _left(codec.load(path, Begun))) is not None:
                left.append(found)
        path.unlink(missing_ok=True)
    with unbroken(left):
        stop_all(left)
    return len(left)


def _left(begun: Begun) -> Running | None:
    """The server, or what is left of its group when its leader is gone; never a later process."""
    import psutil

    if (found := processes.attach(begun.pid, begun.started_at)) is not None:
        return found
    rest = Running(pid=begun.pid, started_at=begun.started_at, command=(), log=None)
    return rest if not psutil.pid_exists(begun.pid) and rest.family() else None

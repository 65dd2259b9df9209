"""A program that runs: followed, measured, and stopped with all that it started."""

import os
import shutil
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from model_optimizer.system import unfinished

from .said import tail
from .signals import uninterrupted

if TYPE_CHECKING:
    import psutil

_POLL_S = 0.02
_CLOCK_S = 2.0  # start times are given against a boot time that a clock correction can move
DRAINED_S = 2.0
"""The last words of a program are in its log soon after it ended."""


class Running:
    """A program with a process group of its own, and all that it started.

    `started_at` is the kernel's start time of the process (seconds since the epoch): with `pid` it names
    this process, and never a later one with the same number. `memory_kind` says what `memory_bytes` counts.
    `result` is where a worker writes its answer, if this is one. `log_from` is where in the log its words
    begin, behind those of programs before it. `temporary` is a folder of its own, removed when it is stopped.
    """

    def __init__(
        self,
        *,
        pid: int,
        started_at: float,
        command: tuple[str, ...],
        log: Path | None,
        child: "subprocess.Popen[bytes] | None" = None,
        log_from: int = 0,
        relay: "subprocess.Popen[bytes] | None" = None,
    ) -> None:
        self.pid = pid
        self.started_at = started_at
        self.command = command
        self.log = log
        self.memory_kind = "pss"
        self.result: Path | None = None
        self.temporary: Path | None = None
        self.log_from = log_from
        self._child = child
        self._relay = relay
        self._ended = False

    def poll(self) -> int | None:
        """The exit code, negative for a signal; None while it runs.

        For a program that another process of ours started, the code is not known: 0 once it has ended.
        """
        if self._child is not None:
            code = self._child.poll()
            if code is not None and not self._ended:
                self._drain()
                if self.temporary is not None and not self.family():
                    self._remove_temporary()
            return code
        return None if same(self.pid, self.started_at) else 0

    def wait(self, timeout_s: float | None = None) -> int | None:
        """Wait for its end; the exit code, or None when it still runs after the time."""
        until = None if timeout_s is None else time.monotonic() + timeout_s
        while (code := self.poll()) is None and (until is None or time.monotonic() < until):
            time.sleep(_POLL_S)
        return code

    def stop(self, grace_s: float = 10.0) -> int | None:
        """End the whole group: SIGINT, after half of the grace SIGTERM, then SIGKILL. The exit code.

        Ctrl-C meanwhile ends the politeness, never the ending: all is killed before it is raised.
        """
        family: list[psutil.Process] = []
        try:
            family = self.family()
            for number in (signal.SIGINT, signal.SIGTERM):
                self._signal(number)
                if self._gone(family, grace_s / 2):
                    break
        finally:
            with uninterrupted():
                code = self._kill(family)
        return code

    def _kill(self, family: "list[psutil.Process]") -> int | None:
        self._signal(signal.SIGKILL)
        for process in family:
            if alive(process):
                with suppress(Exception):
                    process.kill()
        code = self.wait(5.0)
        self._drain()
        self._remove_temporary()
        return code

    def _drain(self) -> None:
        """Until the last words are in the log, or for a moment where a child still holds the pipe."""
        self._ended = True
        if self._relay is not None:
            with suppress(subprocess.TimeoutExpired):
                self._relay.wait(DRAINED_S)

    def _remove_temporary(self) -> None:
        if self.temporary is not None:
            shutil.rmtree(self.temporary, ignore_errors=True)

    def family(self) -> list["psutil.Process"]:
        """This process, its group and its descendants, as they are now."""
        import psutil

        found = {self.pid} if self.poll() is None else set[int]()
        with suppress(psutil.Error):
            if found:
                found |= {child.pid for child in psutil.Process(self.pid).children(recursive=True)}
        for pid in psutil.pids():
            with suppress(OSError):
                if os.getpgid(pid) == self.pid:
                    found.add(pid)
        members: list[psutil.Process] = []
        for pid in found:
            with suppress(psutil.Error):
                member = psutil.Process(pid)
                if member.create_time() >= self.started_at - _CLOCK_S and alive(member):
                    members.append(member)
        return members

    def memory_bytes(self) -> int | None:
        """What the whole group holds: proportional set size where the kernel tells, else the resident
        size, in which shared pages count once for each process. None when it has ended."""
        import psutil

        total, seen = 0, False
        for process in self.family():
            try:
                info = process.memory_full_info()
                if not hasattr(info, "pss"):
                    self.memory_kind = "rss"
                total += getattr(info, "pss", info.rss)
                seen = True
            except psutil.AccessDenied:
                self.memory_kind = "rss"
                with suppress(psutil.Error):
                    total += process.memory_info().rss
                    seen = True
            except psutil.Error:
                continue
        return total if seen else None

    def log_tail(self, lines: int = 20) -> tuple[str, ...]:
        """The last lines of the log, without empty ones at the end."""
        return tail(self.log, lines, from_byte=self.log_from) if self.log else ()

    def _signal(self, number: int) -> None:
        """To the group, which lives as long as one member does, even when its leader has ended."""
        if self.poll() is None or self.family():
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, number)

    def _gone(self, family: "list[psutil.Process]", timeout_s: float) -> bool:
        until = time.monotonic() + timeout_s
        while time.monotonic() < until:
            if self.poll() is not None and not any(alive(process) for process in family):
                return True
            time.sleep(_POLL_S)
        return False


def attach(pid: int, started_at: float, *, log: Path | None = None) -> Running | None:
    """The program that `start` returned in another process; None when it has ended since."""
    process = same(pid, started_at)
    if process is None:
        return None
    found = Running(pid=pid, started_at=started_at, command=tuple(process.cmdline()), log=log)
    found.temporary = _temporary_of(process)
    return found


def _temporary_of(process: "psutil.Process") -> Path | None:
    """The temporary folder that `start` gave it; None where it got none."""
    import psutil

    with suppress(psutil.Error):
        place = Path(process.environ().get("TMPDIR", ""))
        return place if unfinished.is_temporary(place) else None
    return None


def ask_to_end(pid: int, started_at: float, wait_s: float) -> bool:
    """SIGTERM to one process of ours, which stops what it started. Whether it ended in time; also True when
    it had ended before."""
    until = time.monotonic() + wait_s
    if same(pid, started_at) is None:
        return True
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGTERM)
    while time.monotonic() < until:
        if same(pid, started_at) is None:
            return True
        time.sleep(_POLL_S)
    return False


def own_start() -> float:
    """The kernel's start time of this process, as `Running.started_at` has it."""
    import psutil

    return psutil.Process().create_time()


def alive(process: "psutil.Process") -> bool:
    """A zombie has ended: only its parent has not asked yet."""
    import psutil

    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def same(pid: int, started_at: float) -> "psutil.Process | None":
    """The living process with this number and start time."""
    import psutil

    try:
        process = psutil.Process(pid)
        return process if abs(process.create_time() - started_at) < _CLOCK_S and alive(process) else None
    except psutil.Error:
        return None

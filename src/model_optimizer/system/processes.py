"""Start outside programs, follow them, and stop exactly what was started.

Every program gets a session, and so a process group, of its own: stopping it reaches its children too
and nothing else. Nothing is ever stopped by its name.
"""

import os
import queue
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING

from model_optimizer.core import HostError, ToolError, UsageError

from . import files, log_relay

if TYPE_CHECKING:
    import psutil

_POLL_S = 0.02
_CLOCK_S = 2.0  # start times are given against a boot time that a clock correction can move
_LINE_BYTES = 1 << 16
_TAIL_BYTES = 1 << 17
_HEAD_BYTES = 1 << 20
_DRAINED_S = 2.0  # the last words of a program are in its log soon after it ended


@dataclass(frozen=True, slots=True, kw_only=True)
class Rotation:
    """How long a log may get, and how many older ones are kept beside it. Every file begins with what the
    program printed first: up to a quarter of the size, 1 MiB at most."""

    limit_bytes: int = 64 << 20
    older: int = 4

    @property
    def quarter(self) -> int:
        return self.limit_bytes // 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """A program that has ended. `code` is negative for a signal."""

    command: tuple[str, ...]
    code: int
    stdout: str
    stderr: str
    seconds: float


class Running:
    """A program with a process group of its own, and all that it started.

    `started_at` is the kernel's start time of the process (seconds since the epoch): with `pid` it names
    this process, and never a later one with the same number. `memory_kind` says what `memory_bytes` counts.
    `result` is where a worker writes its answer, if this is one. `log_from` is where in the log its words
    begin, behind those of programs before it.
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
        self.log_from = log_from
        self._child = child
        self._relay = relay
        self._drained = relay is None

    def poll(self) -> int | None:
        """The exit code, negative for a signal; None while it runs.

        For a program that another process of ours started, the code is not known: 0 once it has ended.
        """
        if self._child is not None:
            code = self._child.poll()
            if code is not None and not self._drained:
                self._drain()
            return code
        return None if _same(self.pid, self.started_at) else 0

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
            if _alive(process):
                with suppress(Exception):
                    process.kill()
        code = self.wait(5.0)
        self._drain()
        return code

    def _drain(self) -> None:
        """Until the last words are in the log, or for a moment where a child still holds the pipe."""
        self._drained = True
        if self._relay is not None:
            with suppress(subprocess.TimeoutExpired):
                self._relay.wait(_DRAINED_S)

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
                if member.create_time() >= self.started_at - _CLOCK_S and _alive(member):
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
            if self.poll() is not None and not any(_alive(process) for process in family):
                return True
            time.sleep(_POLL_S)
        return False


def start(
    command: Sequence[str | Path],
    *,
    log: Path | None,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    with_us: bool = False,
    rotation: Rotation | None = None,
) -> Running:
    """Start a program in the background; what it prints is added to `log` (dropped when None).

    `env` replaces the environment of this process. `with_us` has the kernel end it when this process is
    killed, where the system can do that. With `rotation` a small process beside it keeps the log from growing
    for ever. Raises HostError when it cannot be started.
    """
    if with_us and (setpriv := shutil.which("setpriv")):
        if shutil.which(command[0], path=(env or os.environ).get("PATH")) is None:
            raise _missing(str(command[0]))
        command = [setpriv, "--pdeathsig", "TERM", "--", *command]
    if log is None:
        return _running(_spawn(command, subprocess.DEVNULL, subprocess.DEVNULL, env, cwd), command, log)
    if rotation is not None:
        return _start_bounded(command, log, rotation, env, cwd)
    with _append(log) as stream:
        begun = stream.tell() if stream.seekable() else 0
        found = _running(_spawn(command, stream, subprocess.STDOUT, env, cwd), command, log)
        found.log_from = begun
        return found


def begin_log(log: Path, rotation: Rotation | None = None) -> int:
    """Where in its log the words of a program will begin that is started next. A long log makes room first:
    most of it is for the program. Raises HostError."""
    try:
        size = log.stat().st_size if log.is_file() else 0
        if rotation is None or size <= rotation.quarter:
            return size
        log_relay.shift(log.resolve(), rotation.older)
    except OSError as error:
        raise files.host_error(error, log) from error
    return 0


def _start_bounded(
    command: Sequence[str | Path],
    log: Path,
    rotation: Rotation,
    env: Mapping[str, str] | None,
    cwd: Path | None,
) -> Running:
    """The program prints into a pipe; who reads it lives as long as somebody writes."""
    path, begun = log.absolute(), begin_log(log, rotation)
    with _append(log) as stream:
        head = begun + min(rotation.quarter, _HEAD_BYTES)
        numbers = map(str, (rotation.limit_bytes, rotation.older, head))
        words = [sys.executable, "-I", "-S", log_relay.__file__, path, *numbers]
        relay = _spawn(words, stream, subprocess.DEVNULL, None, None, subprocess.PIPE)
    assert relay.stdin is not None
    with relay.stdin:
        found = _running(_spawn(command, relay.stdin, subprocess.STDOUT, env, cwd), command, log, relay)
    found.log_from = begun
    return found


def attach(pid: int, started_at: float, *, log: Path | None = None) -> Running | None:
    """The program that `start` returned in another process; None when it has ended since."""
    process = _same(pid, started_at)
    if process is None:
        return None
    return Running(pid=pid, started_at=started_at, command=tuple(process.cmdline()), log=log)


def run(
    command: Sequence[str | Path],
    *,
    timeout_s: float | None = None,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    text: str | None = None,
) -> Ended:
    """Run a program to its end and keep what it printed. `text` is its standard input.

    Any exit code is an answer. Raises HostError when it cannot be started, ToolError when the time is up.
    """
    words = tuple(str(word) for word in command)
    begun = time.monotonic()
    feed = subprocess.DEVNULL if text is None else subprocess.PIPE
    child = _spawn(command, subprocess.PIPE, subprocess.PIPE, env, cwd, feed)
    running = _running(child, command, None)
    try:
        with interruptible():
            out, err = child.communicate(None if text is None else text.encode(), timeout=timeout_s)
    except subprocess.TimeoutExpired:
        raise timed_out(words, timeout_s) from None
    finally:
        if running.poll() is None:
            running.stop(grace_s=2.0)
        for pipe in (child.stdin, child.stdout, child.stderr):
            if pipe:
                pipe.close()
    seconds = time.monotonic() - begun
    return Ended(
        command=words, code=child.returncode, stdout=_decode(out), stderr=_decode(err), seconds=seconds
    )


def follow(
    command: Sequence[str | Path],
    on_line: Callable[[str], bool],
    *,
    log: Path,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    timeout_s: float | None = None,
    merged: bool = False,
) -> int:
    """Run a program to its end, hand each line of its stderr to `on_line`, and return the exit code.

    A line for which `on_line` says False goes to `log`, as does stdout (with `merged`, stdout is read
    like stderr). Lines come in the caller's thread. Whatever ends this call (also Ctrl-C, or a SIGTERM
    to this process) ends the program and its group. Raises ToolError when the time is up.
    """
    with files.explained(log, within=log.parent), _append(log) as stream, interruptible():
        out, err = (subprocess.PIPE, subprocess.STDOUT) if merged else (stream, subprocess.PIPE)
        child = _spawn(command, out, err, env, cwd)
        running = _running(child, command, log)
        lines = _Lines(child.stdout if merged else child.stderr)
        try:
            for line in lines.until_end(running, timeout_s):
                if not on_line(_decode(line).rstrip("\r\n")):
                    stream.write(line if line.endswith(b"\n") else line + b"\n")
                    stream.flush()
            code = running.wait()
        finally:
            if running.poll() is None or running.family():
                running.stop(grace_s=5.0)
            lines.leave()
        return code if code is not None else -signal.SIGKILL


@contextmanager
def interruptible() -> Generator[None]:
    """While inside, a polite end of this process (SIGTERM, a closed terminal) unwinds like Ctrl-C, so that
    what was started is stopped and what is half made is removed."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    wanted = [n for n in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(n) == signal.SIG_DFL]
    for number in wanted:
        signal.signal(number, _interrupt)
    try:
        yield
    finally:
        for number in wanted:
            signal.signal(number, signal.SIG_DFL)


@contextmanager
def uninterrupted() -> Generator[None]:
    """While inside, Ctrl-C and a polite end of this process are not heard: for what must be finished."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {n: signal.signal(n, signal.SIG_IGN) for n in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def free_port() -> int:
    """A TCP port of 127.0.0.1 that nobody listens on at this moment."""
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def ask_to_end(pid: int, started_at: float, wait_s: float) -> bool:
    """SIGTERM to one process of ours, which stops what it started. Whether it ended in time; also True when
    it had ended before."""
    until = time.monotonic() + wait_s
    if _same(pid, started_at) is None:
        return True
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGTERM)
    while time.monotonic() < until:
        if _same(pid, started_at) is None:
            return True
        time.sleep(_POLL_S)
    return False


def own_start() -> float:
    """The kernel's start time of this process, as `Running.started_at` has it."""
    import psutil

    return psutil.Process().create_time()


def tail(log: Path, lines: int = 20, *, from_byte: int = 0) -> tuple[str, ...]:
    """The last lines of a file that may be long, none of them before `from_byte`; () when there is none."""
    try:
        with log.open("rb") as stream:
            stream.seek(0, os.SEEK_END)
            stream.seek(max(0, from_byte, stream.tell() - _TAIL_BYTES))
            text = _decode(stream.read(_TAIL_BYTES))  # a device has no end
    except OSError:
        return ()
    return tuple(line.rstrip() for line in text.rstrip().splitlines()[-lines:] if line.strip())


def how_it_ended(code: int) -> str:
    """An exit code in words: `exit code 1`, `killed by SIGKILL`."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"killed by signal {-code}"


def timed_out(command: Sequence[str], timeout_s: float | None) -> ToolError:
    name = Path(command[0]).name
    return ToolError(
        f"`{name}` did not end within {timeout_s:g} s, it was stopped",
        cause=(" ".join(command)[:500],),
        reference="timed-out",
    )


def _spawn(
    command: Sequence[str | Path],
    out: int | IO[bytes],
    err: int | IO[bytes],
    env: Mapping[str, str] | None,
    cwd: Path | None,
    feed: int = subprocess.DEVNULL,
) -> "subprocess.Popen[bytes]":
    words = [str(word) for word in command]
    given = None if env is None else dict(env)
    try:
        return subprocess.Popen(
            words, stdin=feed, stdout=out, stderr=err, env=given, cwd=cwd, start_new_session=True
        )
    except FileNotFoundError as error:
        if cwd is not None and not cwd.is_dir():
            raise UsageError(f"there is no folder `{cwd}` to run `{words[0]}` in") from error
        raise _missing(words[0]) from error
    except OSError as error:
        raise HostError(f"`{words[0]}` cannot be started", cause=(error.strerror or str(error),)) from error


def _missing(program: str) -> HostError:
    return HostError(f"there is no program `{program}`", hint=("install it, or put it on PATH",))


def _running(
    child: "subprocess.Popen[bytes]",
    command: Sequence[str | Path],
    log: Path | None,
    relay: "subprocess.Popen[bytes] | None" = None,
) -> Running:
    import psutil

    words = tuple(str(word) for word in command)
    started_at = psutil.Process(child.pid).create_time()
    return Running(pid=child.pid, started_at=started_at, command=words, log=log, child=child, relay=relay)


def _append(log: Path) -> IO[bytes]:
    try:
        log.parent.mkdir(parents=True, exist_ok=True)
        return log.open("ab")
    except OSError as error:
        raise files.host_error(error, log) from error


class _Lines:
    """Lines of a pipe, read by a thread so that a silent program cannot hold up its caller."""

    def __init__(self, source: IO[bytes] | None) -> None:
        assert source is not None
        self._found: queue.Queue[bytes | None] = queue.Queue(maxsize=10_000)
        self._left = threading.Event()
        self._thread = threading.Thread(target=self._read, args=(source,), daemon=True)
        self._thread.start()

    def until_end(self, running: Running, timeout_s: float | None) -> Iterator[bytes]:
        """Lines as they come. Ends soon after the program does, even if a child keeps the pipe open."""
        until = float("inf") if timeout_s is None else time.monotonic() + timeout_s
        ended_at: float | None = None
        while True:
            try:
                line = self._found.get(timeout=0.1)
                if line is None:
                    return
                yield line
            except queue.Empty:
                if running.poll() is not None:
                    ended_at = ended_at or time.monotonic()
                    if time.monotonic() - ended_at > 1.0:
                        return
            if time.monotonic() > until and running.poll() is None:
                raise timed_out(running.command, timeout_s)

    def leave(self) -> None:
        """No more lines are wanted: the rest of the pipe is dropped."""
        self._left.set()
        self._thread.join(timeout=2.0)

    def _read(self, source: IO[bytes]) -> None:
        with suppress(ValueError, OSError), source:
            while line := source.readline(_LINE_BYTES):
                self._put(line)
        self._put(None)

    def _put(self, line: bytes | None) -> None:
        while not self._left.is_set():
            with suppress(queue.Full):
                self._found.put(line, timeout=0.2)
                return


def _alive(process: "psutil.Process") -> bool:
    """A zombie has ended: only its parent has not asked yet."""
    import psutil

    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def _same(pid: int, started_at: float) -> "psutil.Process | None":
    """The living process with this number and start time."""
    import psutil

    try:
        process = psutil.Process(pid)
        return process if abs(process.create_time() - started_at) < _CLOCK_S and _alive(process) else None
    except psutil.Error:
        return None


def _interrupt(_signal: int, _frame: object) -> None:
    raise KeyboardInterrupt


def _decode(data: bytes) -> str:
    return data.decode("utf-8", errors="replace")

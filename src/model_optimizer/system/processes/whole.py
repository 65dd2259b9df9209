"""Running a program to its end."""

import queue
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from model_optimizer.core import ToolError
from model_optimizer.system import files

from .begin import append, running_of, spawn
from .running import Running
from .said import decode
from .signals import interruptible

_LINE_BYTES = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """A program that has ended. `code` is negative for a signal."""

    command: tuple[str, ...]
    code: int
    stdout: str
    stderr: str
    seconds: float


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
    child = spawn(command, subprocess.PIPE, subprocess.PIPE, env, cwd, feed)
    running = running_of(child, command, None)
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
        command=words, code=child.returncode, stdout=decode(out), stderr=decode(err), seconds=seconds
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
    with files.explained(log, within=log.parent), append(log) as stream, interruptible():
        out, err = (subprocess.PIPE, subprocess.STDOUT) if merged else (stream, subprocess.PIPE)
        child = spawn(command, out, err, env, cwd)
        running = running_of(child, command, log)
        lines = _Lines(child.stdout if merged else child.stderr)
        try:
            for line in lines.until_end(running, timeout_s):
                if not on_line(decode(line).rstrip("\r\n")):
                    stream.write(line if line.endswith(b"\n") else line + b"\n")
                    stream.flush()
            code = running.wait()
        finally:
            if running.poll() is None or running.family():
                running.stop(grace_s=5.0)
            lines.leave()
        return code if code is not None else -signal.SIGKILL


def timed_out(command: Sequence[str], timeout_s: float | None) -> ToolError:
    name = Path(command[0]).name
    return ToolError(
        f"`{name}` did not end within {timeout_s:g} s, it was stopped",
        cause=(" ".join(command)[:500],),
        reference="timed-out",
    )


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

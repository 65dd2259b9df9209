"""Starting a program in the background, its words going to a log that stays small."""

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from model_optimizer.core import HostError, UsageError
from model_optimizer.system import files, log_relay

from .running import Running

_HEAD_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Rotation:
    """How long a log may get, and how many older ones are kept beside it. Every file begins with what the
    program printed first: up to a quarter of the size, 1 MiB at most."""

    limit_bytes: int = 64 << 20
    older: int = 4

    @property
    def quarter(self) -> int:
        return self.limit_bytes // 4


def start(
    command: Sequence[str | Path],
    *,
    log: Path | None,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    with_us: bool = False,
    rotation: Rotation | None = None,
    own_temporary: bool = False,
) -> Running:
    """Start a program in the background; what it prints is added to `log` (dropped when None).

    `env` replaces the environment of this process. `with_us` has the kernel end it when this process is
    killed, where the system can do that. With `rotation` a small process beside it keeps the log from growing
    for ever. `own_temporary` gives it a temporary folder that goes when it is stopped. Raises HostError when
    it cannot be started.
    """
    if with_us and (setpriv := shutil.which("setpriv")):
        if shutil.which(command[0], path=(env or os.environ).get("PATH")) is None:
            raise missing(str(command[0]))
        command = [setpriv, "--pdeathsig", "TERM", "--", *command]
    if not own_temporary or (own := files.temporary_for_another()) is None:
        return _start(command, log, env, cwd, rotation)
    place, held = own
    try:
        given = {**(os.environ if env is None else env), "TMPDIR": str(place)}
        found = _start(command, log, given, cwd, rotation, held)
    except BaseException:
        shutil.rmtree(place, ignore_errors=True)
        raise
    finally:
        os.close(held)  # the program has it too
    found.temporary = place
    return found


def _start(
    command: Sequence[str | Path],
    log: Path | None,
    env: Mapping[str, str] | None,
    cwd: Path | None,
    rotation: Rotation | None,
    *kept: int,
) -> Running:
    """`kept` are files that it gets open."""
    if log is None:
        nowhere = subprocess.DEVNULL
        return running_of(spawn(command, nowhere, nowhere, env, cwd, kept=kept), command, log)
    if rotation is not None:
        return _start_bounded(command, log, rotation, env, cwd, *kept)
    with append(log) as stream:
        begun = stream.tell() if stream.seekable() else 0
        found = running_of(spawn(command, stream, subprocess.STDOUT, env, cwd, kept=kept), command, log)
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
    *kept: int,
) -> Running:
    """The program prints into a pipe; who reads it lives as long as somebody writes."""
    path, begun = log.absolute(), begin_log(log, rotation)
    with append(log) as stream:
        head = begun + min(rotation.quarter, _HEAD_BYTES)
        numbers = map(str, (rotation.limit_bytes, rotation.older, head))
        words = [sys.executable, "-I", "-S", log_relay.__file__, path, *numbers]
        relay = spawn(words, stream, subprocess.DEVNULL, None, None, subprocess.PIPE)
    assert relay.stdin is not None
    with relay.stdin:
        child = spawn(command, relay.stdin, subprocess.STDOUT, env, cwd, kept=kept)
        found = running_of(child, command, log, relay)
    found.log_from = begun
    return found


def spawn(
    command: Sequence[str | Path],
    out: int | IO[bytes],
    err: int | IO[bytes],
    env: Mapping[str, str] | None,
    cwd: Path | None,
    feed: int = subprocess.DEVNULL,
    kept: Sequence[int] = (),
) -> "subprocess.Popen[bytes]":
    words = [str(word) for word in command]
    given = None if env is None else dict(env)
    try:
        return subprocess.Popen(
            words,
            stdin=feed,
            stdout=out,
            stderr=err,
            env=given,
            cwd=cwd,
            start_new_session=True,
            pass_fds=kept,
        )
    except FileNotFoundError as error:
        if cwd is not None and not cwd.is_dir():
            raise UsageError(f"there is no folder `{cwd}` to run `{words[0]}` in") from error
        raise missing(words[0]) from error
    except OSError as error:
        raise HostError(f"`{words[0]}` cannot be started", cause=(error.strerror or str(error),)) from error


def missing(program: str) -> HostError:
    return HostError(f"there is no program `{program}`", hint=("install it, or put it on PATH",))


def running_of(
    child: "subprocess.Popen[bytes]",
    command: Sequence[str | Path],
    log: Path | None,
    relay: "subprocess.Popen[bytes] | None" = None,
) -> Running:
    import psutil

    words = tuple(str(word) for word in command)
    started_at = psutil.Process(child.pid).create_time()
    return Running(pid=child.pid, started_at=started_at, command=words, log=log, child=child, relay=relay)


def append(log: Path) -> IO[bytes]:
    try:
        log.parent.mkdir(parents=True, exist_ok=True)
        return log.open("ab")
    except OSError as error:
        raise files.host_error(error, log) from error


def free_port() -> int:
    """A TCP port of 127.0.0.1 that nobody listens on at this moment."""
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]

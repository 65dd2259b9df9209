"""Containers: start one, follow its log, stop exactly that one. Docker, or podman where there is no Docker.

A container is named by the id that its start returned, never by a name or a part of one.
"""

import re
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from model_optimizer.core import HostError, MoptError, ToolError

from . import files, processes
from .processes import Rotation, Running

RUNTIMES = ("docker", "podman")
ASK_S = 30.0
INFO_S = 5.0
START_S = 120.0
PULL_S = 4 * 3600.0
LOOK_EVERY_S = 0.5
LAST_WORDS_S = 2.0
_ID = re.compile(r"[0-9a-f]{12,64}")


class _State(msgspec.Struct, frozen=True):
    """The part of `.State` that is read; podman writes the same names."""

    status: str = msgspec.field(name="Status", default="")
    running: bool = msgspec.field(name="Running", default=False)
    code: int = msgspec.field(name="ExitCode", default=0)
    killed: bool = msgspec.field(name="OOMKilled", default=False)
    pid: int = msgspec.field(name="Pid", default=0)


class Contained(Running):
    """A container as a program that runs. `pid` is its first process as the host numbers it; 0 when the
    runtime does not say."""

    def __init__(self, *, runtime: str, container: str, log: Path, follower: Running | None = None) -> None:
        state = _state(runtime, container)
        pid = state.pid if state else 0
        super().__init__(pid=pid, started_at=_started(pid), command=(runtime, "run", container), log=log)
        self.runtime, self.container = runtime, container
        self._follower = follower
        self._seen: tuple[float, int | None] = (float("-inf"), None)

    def poll(self) -> int | None:
        """Its exit code; None while it runs, also when the runtime does not answer for a moment."""
        now = time.monotonic()
        if self._seen[1] is None and now - self._seen[0] >= LOOK_EVERY_S:
            self._seen = (now, self._look())
            if self._seen[1] is not None and self._follower is not None:
                self._follower.wait(LAST_WORDS_S)
        return self._seen[1]

    def _look(self) -> int | None:
        state = _state(self.runtime, self.container)
        if state is None:
            return -9 if _gone(self.runtime, self.container) else None
        if state.running or state.status in ("created", "running", "restarting", "paused"):
            return None
        return -9 if state.killed else state.code

    def stop(self, grace_s: float = 10.0) -> int | None:
        """Stop it politely, remove it, and end what followed its log. The exit code."""
        code: int | None = None
        try:
            _run(
                self.runtime,
                "stop",
                "--time",
                str(max(1, round(grace_s))),
                self.container,
                limit_s=grace_s + ASK_S,
            )
            code = self._look()
        finally:
            with processes.uninterrupted():
                _run(self.runtime, "rm", "--force", self.container)
                if self._follower is not None:
                    self._follower.stop(grace_s=1.0)
        self._seen = (time.monotonic(), code if code is not None else -9)
        return self._seen[1]

    def memory_bytes(self) -> int | None:
        """None where the host does not see the processes of the container."""
        return super().memory_bytes() if self.pid else None


def runtime() -> str:
    """The one that is installed. Raises HostError."""
    found = next((name for name in RUNTIMES if shutil.which(name)), None)
    if found is None:
        raise HostError(
            "neither docker nor podman is on PATH",
            hint=("`mopt doctor` says how to install one with GPUs", "or leave --container out"),
            reference="no-container-runtime",
        )
    return found


def log_driver(name: str) -> str | None:
    """Where Docker's daemon keeps what containers print that do not choose. None when it does not answer in
    time, and for podman under the name of docker, which has no such field."""
    said = _run(name, "info", "--format", "{{.LoggingDriver}}", limit_s=INFO_S)
    return (said or "").strip() or None


def have_image(name: str, image: str) -> bool:
    return _run(name, "image", "inspect", "--format", "{{.Id}}", image) is not None


def pull(name: str, image: str, log: Path, say: Callable[[str], None]) -> None:
    """Fetch an image; its layers are said as they come. Raises ToolError."""

    def line(text: str) -> bool:
        if text.strip():
            say(f"{image}: {text.strip()[:100]}")
        return False

    code = processes.follow([name, "pull", image], line, log=log, timeout_s=PULL_S, merged=True)
    if code != 0:
        raise ToolError(
            f"the image `{image}` cannot be pulled",
            cause=processes.tail(log, 4),
            hint=(f"the whole log: {log}",),
            reference="image-pull-failed",
        )


def start(
    words: Sequence[str], log: Path, *, env: Mapping[str, str], rotation: Rotation | None = None
) -> Contained:
    """`docker run --detach`: the words after `run` are the caller's. Its log is followed into `log`.

    `env` is of the runtime's own process: `-e NAME` without a value takes it from there. Raises ToolError.
    Whatever is raised, no container of it is left.
    """
    name, rest = words[0], list(words[2:])
    with files.temporary() as place:
        kept = place / "container"
        command = [name, "run", "--detach", "--cidfile", str(kept), *rest]
        try:
            done = processes.run(command, timeout_s=START_S, env=env)
            found = done.stdout.strip().splitlines()[-1:] or [""]
            if done.code != 0 or not _ID.fullmatch(found[0]):
                raise _refused(name, done.code, done.stderr)
            follow = [name, "logs", "--follow", found[0]]
            follower = processes.start(follow, log=log, env=env, rotation=rotation)
            made = Contained(runtime=name, container=found[0], log=log, follower=follower)
            made.log_from = follower.log_from
            return made
        except BaseException:
            with processes.uninterrupted():
                _remove(name, kept)
            raise


def attach(name: str, container: str, *, log: Path) -> Contained | None:
    """The container that another process started; None when it has ended or is gone."""
    if not _ID.fullmatch(container) or shutil.which(name) is None:
        return None
    state = _state(name, container)
    if state is None or not state.running:
        return None
    return Contained(runtime=name, container=container, log=log)


def _remove(name: str, kept: Path) -> None:
    """The container that a start had already made when it failed."""
    with suppress(OSError):
        made = kept.read_text().strip()
        if _ID.fullmatch(made):
            _run(name, "rm", "--force", made)


def _refused(name: str, code: int, said: str) -> ToolError:
    taken = "port is already allocated" in said or "address already in use" in said.lower()
    lines = tuple(line.strip() for line in said.strip().splitlines() if line.strip())[-4:]
    return ToolError(
        f"`{name} run` refused to start the container",
        cause=lines or (processes.how_it_ended(code),),
        reference="port-in-use" if taken else "container-refused",
    )


def _state(name: str, container: str) -> _State | None:
    """What `inspect` says of its state; None when it cannot be asked, or there is no such container."""
    found = _run(name, "inspect", "--format", "{{json .State}}", container)
    try:
        return None if found is None else msgspec.json.decode(found, type=_State)
    except msgspec.MsgspecError:
        return None


def _gone(name: str, container: str) -> bool:
    """Whether the runtime answers and does not have it."""
    listed = _run(name, "ps", "--all", "--no-trunc", "--quiet")
    return listed is not None and not any(line.startswith(container[:12]) for line in listed.splitlines())


def _run(name: str, *words: str, limit_s: float = ASK_S) -> str | None:
    """What a short command of the runtime prints; None when it failed."""
    try:
        done = processes.run([name, *words], timeout_s=limit_s)
    except MoptError:
        return None
    return done.stdout if done.code == 0 else None


def _started(pid: int) -> float:
    import psutil

    try:
        return psutil.Process(pid).create_time() if pid else 0.0
    except psutil.Error:
        return 0.0

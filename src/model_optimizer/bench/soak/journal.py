"""The file that a soak writes: its task, then one window a line. Each line is on the disk before the next
window begins, so a crash costs one window at most."""

import os
from contextlib import suppress
from pathlib import Path

from model_optimizer.core import UsageError, codec
from model_optimizer.system import files

from .nouns import SoakWindow, Task

NAME = "soak.jsonl"


class Journal:
    """Windows that are kept. `create` begins a new one, `reopen` goes on with one that is there."""

    def __init__(self, path: Path, task: Task, windows: list[SoakWindow]) -> None:
        self.path = path
        self.task = task
        self.windows = windows

    @classmethod
    def create(cls, folder: Path, task: Task) -> "Journal":
        """UsageError when there is one with windows already, HostError when it cannot be written."""
        path = folder / NAME
        if path.exists() and path.read_bytes().count(b"\n") > 1:
            raise UsageError(
                f"`{path}` holds a soak already",
                hint=("go on with it: add --resume", "or name another folder with --out"),
            )
        with files.explained(path):
            folder.mkdir(parents=True, exist_ok=True)
        files.write_atomic(path, codec.line(task))
        return cls(path, task, [])

    @classmethod
    def reopen(cls, folder: Path, task: Task | None = None) -> "Journal":
        """Read what is there. A last line that was cut off is removed; any other broken line is a
        UsageError, and so is a `task` that asks for something else."""
        path = folder / NAME
        try:
            content = path.read_bytes()
        except OSError as error:
            raise UsageError(
                f"`{folder}` holds no soak",
                cause=(f"{error.strerror or error}: {path}",),
                hint=("name the folder that `mopt soak --out` was given",),
            ) from error
        lines = content.split(b"\n")
        if lines[-1]:  # it has no end: the writer died while writing it
            content = content[: len(content) - len(lines[-1])]
            with files.explained(path), path.open("r+b") as stream:
                stream.truncate(len(content))
        whole = [line for line in content.split(b"\n") if line]
        if not whole:
            raise UsageError(f"`{path}` is empty", hint=("remove it and begin again",))
        found = codec.loads(whole[0], Task, name=str(path))
        windows = [codec.loads(line, SoakWindow, name=str(path)) for line in whole[1:]]
        if task is not None:
            _require_same(found, task, path)
        return cls(path, found, windows)

    def append(self, window: SoakWindow) -> None:
        """Write one window and wait until the disk has it. HostError when it is full."""
        data = codec.line(window).encode()
        with files.explained(self.path):
            size = self.path.stat().st_size
            try:
                with self.path.open("ab") as stream:
                    stream.write(data)
                    stream.flush()
                    os.fsync(stream.fileno())
            except (OSError, KeyboardInterrupt):
                with suppress(OSError):
                    os.truncate(self.path, size)
                raise
        self.windows.append(window)


_SAME = ("url", "model", "load", "window_s")


def _require_same(found: Task, asked: Task, path: Path) -> None:
    differing = [name for name in _SAME if getattr(found, name) != getattr(asked, name)]
    if differing:
        raise UsageError(
            f"`{path}` is a soak of something else",
            cause=tuple(f"{n}: {getattr(found, n)} there, {getattr(asked, n)} asked" for n in differing),
            hint=("repeat the options of the first run, or name another folder",),
        )

"""Servers that go on without a terminal: one small file each, so that they can be found and stopped.

A process is named by its number and its start time, so that a number that was given away again is never
taken for the server.
"""

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from model_optimizer.core import MoptError, codec
from model_optimizer.system import files, processes

from .handle import ServerHandle


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """A detached server. `started_at` is the kernel's start time of `pid`, seconds since the epoch."""

    served_name: str
    url: str
    pid: int
    started_at: float
    engine: str
    scheme: str
    model: str
    log: str


def remember(folder: Path, served: Served) -> Path:
    """Write the file of one server. Raises HostError."""
    path = folder / f"{served.pid}.json"
    files.write_atomic(path, codec.dumps(served))
    return path


def list_served(folder: Path) -> tuple[Served, ...]:
    """Those that still run, by name; files of others are removed."""
    found: list[Served] = []
    for path in sorted(folder.glob("*.json")):
        try:
            served = codec.load(path, Served)
        except MoptError:
            continue  # not ours, or of another version: left alone
        if processes.attach(served.pid, served.started_at) is None:
            with suppress(OSError):
                path.unlink()
        else:
            found.append(served)
    return tuple(sorted(found, key=lambda s: (s.served_name, s.pid)))


def attach(served: Served) -> ServerHandle | None:
    """Take hold of a server that another process started; None when it has ended."""
    log = Path(served.log)
    running = processes.attach(served.pid, served.started_at, log=log)
    if running is None:
        return None
    return ServerHandle(running, url=served.url, served_name=served.served_name, log=log)


def forget(folder: Path, served: Served) -> None:
    with suppress(OSError):
        (folder / f"{served.pid}.json").unlink()

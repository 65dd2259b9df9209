"""Servers that run: one small file each, so that they can be found and stopped from another terminal.

A process is named by its number and its start time, so that a number that was given away again is never
taken for the server.
"""

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from model_optimizer.core import MoptError, codec
from model_optimizer.system import containers, files, processes
from model_optimizer.system.processes import Running

from .handle import ServerHandle

STOP_WAIT_S = 40.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """A server. `started_at` is the kernel's start time of `pid`, seconds since the epoch.

    `supervisor` is the process that watches it, None for one that was left alone; `container` its id where it
    runs in one, `runtime` the program that has it. `url` is empty while it starts. What the engine printed of
    its KV cache stands beside what was predicted.
    """

    served_name: str
    url: str
    pid: int
    started_at: float
    engine: str
    scheme: str
    model: str
    log: str
    supervisor: int | None = None
    supervisor_started_at: float = 0.0
    runtime: str | None = None
    container: str | None = None
    starts: int = 1
    kv_cache_tokens: int | None = None
    kv_cache_tokens_predicted: int | None = None
    max_concurrency: float | None = None
    max_concurrency_predicted: float | None = None

    @property
    def key(self) -> int:
        """What its file is called: the number of the process that is there as long as it is wanted."""
        return self.supervisor or self.pid


def remember(folder: Path, served: Served) -> Path:
    """Write the file of one server. Raises HostError."""
    path = folder / f"{served.key}.json"
    files.write_atomic(path, codec.dumps(served))
    return path


def list_served(folder: Path) -> tuple[Served, ...]:
    """Those that still run, or are about to again, by name; files of others are removed."""
    found: list[Served] = []
    for path in sorted(folder.glob("*.json")):
        try:
            served = codec.load(path, Served)
        except MoptError:
            continue  # not ours, or of another version: left alone
        if watched(served) or _running(served, Path(served.log)) is not None:
            found.append(served)
        else:
            with suppress(OSError):
                path.unlink()
    return tuple(sorted(found, key=lambda s: (s.served_name, s.pid)))


def watched(served: Served) -> bool:
    """Whether the process that watches it is there."""
    return (
        served.supervisor is not None
        and processes.attach(served.supervisor, served.supervisor_started_at) is not None
    )


def attach(served: Served) -> ServerHandle | None:
    """Take hold of a server that another process started; None when it has ended."""
    log = Path(served.log)
    running = _running(served, log)
    if running is None:
        return None
    return ServerHandle(running, url=served.url, served_name=served.served_name, log=log)


def _running(served: Served, log: Path) -> Running | None:
    if served.container is not None:
        return containers.attach(served.runtime or containers.RUNTIMES[0], served.container, log=log)
    return processes.attach(served.pid, served.started_at, log=log)


def end(served: Served) -> None:
    """Stop it: who watches it is asked to, else it is done here. Nothing happens when it has ended."""
    if served.supervisor is not None and watched(served):
        processes.ask_to_end(served.supervisor, served.supervisor_started_at, STOP_WAIT_S)
    if handle := attach(served):
        handle.stop()


def forget(folder: Path, served: Served) -> None:
    with suppress(OSError):
        (folder / f"{served.key}.json").unlink()

"""A server that runs."""

from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

from model_optimizer.core import HostError, MoptError
from model_optimizer.core.units import show_bytes
from model_optimizer.system import environments, files, processes
from model_optimizer.system.processes import Running

from .cause import raised
from .phases import Start

CRASHED = "worker-crashed"
"""What an error is called that nobody wrote down."""

FULL_BYTES = 1 << 20
"""With less room a program that writes to its log fails."""

LINES_FOR_CAUSE = 400
GRACE_S = 12.0
"""How long a server may take to close what is open; half of it politely."""


class ServerHandle:
    """One server with a process group of its own. Leaving the `with` block stops it.

    `url` has no path. `served_name` is the model name that requests use. `start` says how its start went;
    None for one that another process started.
    """

    def __init__(
        self, running: Running, *, url: str, served_name: str, log: Path, ready_path: str = "/health"
    ) -> None:
        self.url = url
        self.ready_path = ready_path
        self.served_name = served_name
        self.log = log
        self.start: Start | None = None
        self._running = running
        # A polite end of this process must not leave the server behind.
        self._held = ExitStack()
        self._held.enter_context(processes.interruptible())

    @property
    def pid(self) -> int:
        """The leader of the group."""
        return self._running.pid

    @property
    def started_at(self) -> float:
        """The kernel's start time of the leader: with `pid` it names this server and no later process."""
        return self._running.started_at

    @property
    def log_from(self) -> int:
        """Where in the log its own words begin."""
        return self._running.log_from

    @property
    def running(self) -> Running:
        return self._running

    @property
    def code(self) -> int | None:
        """How it ended; None while it runs."""
        return self._running.poll()

    def alive(self) -> bool:
        return self._running.poll() is None

    def memory_bytes(self) -> tuple[int | None, str]:
        """What all its processes hold now, and how that was counted; None when it has ended."""
        words = {
            "pss": "proportional set size of all its processes",
            "rss": "resident set size of all its processes, shared pages counted more than once",
        }
        found = self._running.memory_bytes()
        return found, words[self._running.memory_kind]

    def log_tail(self, lines: int = 20) -> tuple[str, ...]:
        return self._running.log_tail(lines)

    def why_ended(self) -> MoptError:
        """The error for a server that ended by itself: what its worker wrote, else what its log shows."""
        error = environments.why_ended(self._running, f"the server of {self.served_name}")
        free = files.free_bytes(self.log)
        if error.reference == CRASHED and free is not None and free < FULL_BYTES:
            return HostError(
                error.message,
                cause=(f"the disk that holds {self.log} is full: {show_bytes(free)} are free", *error.cause),
                hint=("make room there, or keep the log elsewhere: --log FILE",),
                reference="disk-full",
            )
        if error.reference == CRASHED and (found := raised(self.log_tail(LINES_FOR_CAUSE))):
            error.cause = found
        return error

    def stop(self) -> None:
        """End the whole group; nothing happens when it has ended."""
        try:
            self._running.stop(grace_s=GRACE_S)
        finally:
            self._held.close()

    def detach(self) -> None:
        """Let it go on when this process ends."""
        self._held.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

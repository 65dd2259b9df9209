"""The world that readers look at, as one parameter: a recorded tree of files stands in for a machine."""

import os
import platform
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType
from typing import TypeVar

T = TypeVar("T")
_TEXT_BYTES = 1 << 20


def run(command: Sequence[str], limit_s: float) -> str | None:
    """What a program printed; None when it is not there or failed. TimeoutError after its limit.

    It only reads, so it is ended at once and with all that it started: no polite request, no waiting.
    """
    child = _start(command)
    if child is None:
        return None
    try:
        said, _ = child.communicate(timeout=limit_s)
        return said.decode("utf-8", errors="replace") if child.returncode == 0 else None
    except subprocess.TimeoutExpired as error:
        raise TimeoutError(f"`{' '.join(command[:2])}`: no answer within {limit_s:g} s") from error
    finally:
        _end(child)


def _start(command: Sequence[str]) -> "subprocess.Popen[bytes] | None":
    quiet = subprocess.DEVNULL
    with suppress(OSError):
        if shutil.which(command[0]):
            return subprocess.Popen(
                command, stdin=quiet, stdout=subprocess.PIPE, stderr=quiet, start_new_session=True
            )
    return None


def _end(child: "subprocess.Popen[bytes]") -> None:
    """End a program and its group, without waiting for what cannot be ended."""
    if child.poll() is None:
        with suppress(OSError):
            os.killpg(child.pid, signal.SIGKILL) if hasattr(os, "killpg") else child.kill()
        with suppress(subprocess.TimeoutExpired):
            child.wait(timeout=0.5)
    if child.stdout:
        child.stdout.close()


def nvml() -> ModuleType | None:
    """The module that speaks to NVML; None when it is not installed."""
    with suppress(ImportError):
        import pynvml

        return pynvml
    return None


def reach(host: str, port: int, limit_s: float) -> bool:
    """True when a TCP connection opens."""
    with suppress(OSError), socket.create_connection((host, port), timeout=limit_s):
        return True
    return False


def disk(path: Path) -> tuple[int, int] | None:
    """Size and free bytes of the disk that holds a path that exists."""
    with suppress(OSError):
        found = shutil.disk_usage(path)
        return found.total, found.free
    return None


def site_packages() -> tuple[Path, ...]:
    """Where Python packages lie: of this interpreter, and of the environment that is activated."""
    found = [Path(place) for place in sys.path if place.endswith(("site-packages", "dist-packages"))]
    for name in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        if place := os.environ.get(name):
            found += Path(place).glob("lib/python3*/site-packages")
    return tuple(dict.fromkeys(found))


def attempt(read: Callable[[], T]) -> T | None:
    """The value, or None where the machine does not tell."""
    with suppress(OSError, ValueError, KeyError, IndexError, TypeError, AttributeError):
        return read()
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """`root` holds /proc, /sys, /etc and the rest; the others are what a reader may ask of the machine."""

    root: Path = Path("/")
    home: Path = field(default_factory=Path.home)
    system: str = field(default_factory=platform.system)
    machine: str = field(default_factory=platform.machine)
    python: str = field(default_factory=platform.python_version)
    environ: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    sites: tuple[Path, ...] = field(default_factory=site_packages)
    run: Callable[[Sequence[str], float], str | None] = run
    nvml: Callable[[], ModuleType | None] = nvml
    reach: Callable[[str, int, float], bool] = reach
    which: Callable[[str], str | None] = shutil.which
    disk: Callable[[Path], tuple[int, int] | None] = disk
    today: Callable[[], str] = lambda: datetime.now(UTC).date().isoformat()
    late: list[str] = field(default_factory=list[str])

    def ask(self, command: Sequence[str], limit_s: float) -> str | None:
        """What a program printed; None when there is no answer. One that hangs is noted in `late`."""
        try:
            return self.run(command, limit_s)
        except TimeoutError as error:
            self.late.append(str(error))
            return None

    def at(self, path: str) -> Path:
        return self.root / path.lstrip("/")

    def text(self, path: str) -> str | None:
        """A small file's content; None when it cannot be read."""

        def read() -> str:
            with self.at(path).open("rb") as stream:
                return stream.read(_TEXT_BYTES).decode("utf-8", errors="replace")

        return attempt(read)

    def names(self, path: str) -> tuple[str, ...] | None:
        """What lies in a folder, sorted; None when it cannot be read, () when it is not there."""
        place = self.at(path)
        if not place.exists():
            return ()
        return attempt(lambda: tuple(sorted(entry.name for entry in place.iterdir())))

    def exists(self, path: str) -> bool:
        return attempt(lambda: self.at(path).exists()) or False

    def kernel(self) -> str | None:
        found = self.text("/proc/sys/kernel/osrelease")
        return found.strip() if found else (platform.release() or None if self.system != "Linux" else None)

    def in_container(self) -> bool | None:
        """By the files that engines leave, the name of the control group, or a layered root file system."""
        if self.exists("/.dockerenv") or self.exists("/run/.containerenv"):
            return True
        if self.environ.get("KUBERNETES_SERVICE_HOST") or " / overlay " in (self.text("/proc/mounts") or ""):
            return True
        text = self.text("/proc/1/cgroup")
        return None if text is None else any(word in text for word in ("docker", "kubepods", "libpod"))

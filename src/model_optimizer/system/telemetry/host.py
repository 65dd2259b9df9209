"""The machine's processor and memory, and those of the server's process where it runs here."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from .nvml import open_nvml
from .timeline import Event


def machine() -> str:
    """This machine in a few words that do not change from run to run: processor, cores, memory, GPUs."""
    import psutil

    name = "unknown processor"
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                name = line.partition(":")[2].strip()
                break
    memory = round(psutil.virtual_memory().total / 2**30)
    return ", ".join([f"{name}, {psutil.cpu_count()} cores, {memory} GiB", *_gpu_names()])


def _gpu_names() -> list[str]:
    nvml = open_nvml()
    if nvml is None:
        return []
    names: list[str] = []
    with suppress(nvml.NVMLError, AttributeError):
        for index in range(nvml.nvmlDeviceGetCount()):
            found = nvml.nvmlDeviceGetName(nvml.nvmlDeviceGetHandleByIndex(index))
            names.append(found.decode() if isinstance(found, bytes) else str(found))
    return [f"{names.count(name)} x {name}" for name in dict.fromkeys(names)]


class HostLoad:
    """Processor and memory of the whole machine."""

    name = "host"
    interval_s = 0.5

    def __init__(self) -> None:
        import psutil

        self._psutil = psutil
        psutil.cpu_percent(None)  # the first call only begins the interval

    def read(self, now_ns: int) -> dict[str, float]:
        memory = self._psutil.virtual_memory()
        return {
            "host.cpu_percent": self._psutil.cpu_percent(None),
            "host.memory_used_bytes": float(memory.total - memory.available),
        }

    def events(self) -> Sequence[Event]:
        return ()

    def missing(self) -> Mapping[str, str]:
        return {}

    def close(self) -> None:
        pass


class ServerProcess:
    """Memory, open files and threads of a process and all that it started. When it ends, or another one
    has taken its number, that is an event."""

    name = "server process"
    interval_s = 1.0

    def __init__(self, pid: int) -> None:
        import psutil

        self._psutil = psutil
        self._pid = pid
        self._process: Any = None
        self._events: list[Event] = []
        self._missing: dict[str, str] = {}
        with suppress(psutil.Error):
            self._process = psutil.Process(pid)
        if self._process is None:
            self._missing["server process"] = f"not available: there is no process {pid}"

    def read(self, now_ns: int) -> dict[str, float]:
        if self._process is None:
            return {}
        try:
            if not self._process.is_running() or self._process.status() == self._psutil.STATUS_ZOMBIE:
                raise self._psutil.NoSuchProcess(self._pid)
            family = [self._process, *self._process.children(recursive=True)]
        except self._psutil.Error:
            text = f"process {self._pid} of the server has ended"
            self._events.append(Event(time_ns=now_ns, kind="server-ended", text=text))
            self._process = None
            return {}
        found = self._sums(family)
        with suppress(self._psutil.Error):
            found["server.started_s"] = self._process.create_time()
        return found

    def _sums(self, family: Sequence[Any]) -> dict[str, float]:
        found: dict[str, float] = {}
        readers: dict[str, Callable[[Any], float]] = {
            "server.rss_bytes": lambda p: p.memory_info().rss,
            "server.open_files": lambda p: p.num_fds(),
            "server.threads": lambda p: p.num_threads(),
        }
        for name, read in readers.items():
            for process in family:
                with suppress(self._psutil.Error, AttributeError):
                    found[name] = found.get(name, 0.0) + read(process)
        return found

    def events(self) -> Sequence[Event]:
        events, self._events = self._events, []
        return events

    def missing(self) -> Mapping[str, str]:
        return self._missing

    def close(self) -> None:
        pass

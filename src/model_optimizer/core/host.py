"""What one machine looked like at one moment.

A field is None when it could not be read, and empty when it was read and nothing was there.
Checks rely on that difference: "unknown" is never reported as "broken".
"""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One GPU. Bandwidth is of its own memory; `nvlink_bytes_per_s` is the sum of both directions."""

    name: str
    memory_bytes: int | None = None
    memory_free_bytes: int | None = None
    compute_capability: tuple[int, int] | None = None
    bandwidth_bytes_per_s: int | None = None
    power_limit_w: float | None = None
    pcie: str | None = None
    nvlink_bytes_per_s: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Cpu:
    """`features` are the instruction sets as the kernel names them (avx2, avx512f, amx_tile)."""

    name: str | None = None
    cores: int | None = None
    features: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """`driver_cuda` is the newest CUDA that the driver runs. `gpus` is () on a machine without one."""

    os: str | None = None
    distribution: str | None = None
    kernel: str | None = None
    wsl: bool | None = None
    container: bool | None = None
    cpu: Cpu = field(default_factory=Cpu)
    memory_bytes: int | None = None
    memory_available_bytes: int | None = None
    disk_free_bytes: int | None = None
    python: str | None = None
    packages: Mapping[str, str] | None = None
    container_runtimes: tuple[str, ...] | None = None
    driver_version: str | None = None
    driver_cuda: tuple[int, int] | None = None
    gpus: tuple[Gpu, ...] | None = None

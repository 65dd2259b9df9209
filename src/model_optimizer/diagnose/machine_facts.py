"""Facts below and beside the GPU: kernel modules, firmware, linker, containers, limits.

Each answers yes, no, or None when the host does not tell.
"""

import re
from collections.abc import Callable, Iterable, Mapping

from model_optimizer.core import Gpu, Host

Fact = Callable[[Host, Mapping[str, str]], bool | None]

GIB = 1 << 30
SMALL_SHARED_MEMORY = GIB
"""Docker gives 64 MiB; NCCL and data loaders want gigabytes."""

SMALL_MEMORY_LOCK = GIB
FEW_OPEN_FILES = 4096
FULL_DISK = 2 * GIB


def module_differs(host: Host, _values: Mapping[str, str]) -> bool | None:
    """The loaded kernel module and the driver's libraries are of two versions."""
    if host.nvml == "version mismatch":
        return True
    module, library = host.modules.nvidia_version, _library_version(host)
    if host.nvml == "ok":
        return False
    return None if not module or not library else module != library


def module_matches(host: Host, values: Mapping[str, str]) -> bool | None:
    return _not(module_differs(host, values))


def nouveau_loaded(host: Host, _values: Mapping[str, str]) -> bool | None:
    if any(a.vendor == "nvidia" and a.driver == "nouveau" for a in host.adapters or ()):
        return True
    return None if host.modules.loaded is None else "nouveau" in host.modules.loaded


def module_not_loaded(host: Host, _values: Mapping[str, str]) -> bool | None:
    return None if host.modules.loaded is None or host.wsl else "nvidia" not in host.modules.loaded


def module_open(host: Host, _values: Mapping[str, str]) -> bool | None:
    return host.modules.open


def module_proprietary(host: Host, _values: Mapping[str, str]) -> bool | None:
    return _not(host.modules.open)


def dkms_not_built(host: Host, _values: Mapping[str, str]) -> bool | None:
    return None if host.modules.dkms_added is None else bool(host.modules.dkms_added)


def headers_missing(host: Host, _values: Mapping[str, str]) -> bool | None:
    return _not(host.modules.headers)


def secure_boot(host: Host, _values: Mapping[str, str]) -> bool | None:
    return host.platform.secure_boot


def no_secure_boot(host: Host, _values: Mapping[str, str]) -> bool | None:
    return _not(host.platform.secure_boot)


def selinux_enforcing(host: Host, _values: Mapping[str, str]) -> bool | None:
    return None if host.platform.selinux is None else host.platform.selinux == "enforcing"


def selinux_off(host: Host, values: Mapping[str, str]) -> bool | None:
    return _not(selinux_enforcing(host, values))


def iommu(host: Host, _values: Mapping[str, str]) -> bool | None:
    return host.platform.iommu


def no_fabric_manager(host: Host, _values: Mapping[str, str]) -> bool | None:
    """Where NVSwitches are: nothing else needs it."""
    switches = any(adapter.kind == "switch" for adapter in host.adapters or ())
    return _not(host.platform.fabric_manager) if switches else None


def fabric_manager(host: Host, _values: Mapping[str, str]) -> bool | None:
    return host.platform.fabric_manager


def no_container_toolkit(host: Host, _values: Mapping[str, str]) -> bool | None:
    """Not asked inside a container, which needs none."""
    return None if host.containers.toolkit is None or host.container else not host.containers.toolkit


def runtime_not_registered(host: Host, _values: Mapping[str, str]) -> bool | None:
    return None if host.containers.runtimes is None else "nvidia" not in host.containers.runtimes


def runtime_registered(host: Host, values: Mapping[str, str]) -> bool | None:
    return _not(runtime_not_registered(host, values))


def cgroup_loses_devices(host: Host, _values: Mapping[str, str]) -> bool | None:
    """Docker leaves cgroups to systemd, and /dev/char has no links: a reload takes the GPU away."""
    found = host.containers
    if found.cgroup_driver is None:
        return None
    return False if found.cgroup_driver != "systemd" else _not(found.char_links)


def cdi_missing(host: Host, _values: Mapping[str, str]) -> bool | None:
    return None if host.containers.cdi is None else not host.containers.cdi


def cdi_stale(host: Host, _values: Mapping[str, str]) -> bool | None:
    """A CDI file names another driver than the one that is there."""
    if not host.containers.cdi or host.driver_version is None:
        return None
    return any(version and version != host.driver_version for version in host.containers.cdi.values())


def docker_snap(host: Host, _values: Mapping[str, str]) -> bool | None:
    return host.containers.docker_snap


def docker_rootless(host: Host, _values: Mapping[str, str]) -> bool | None:
    return host.containers.rootless


def docker_refuses(host: Host, _values: Mapping[str, str]) -> bool | None:
    return _not(host.containers.docker_answers)


def compat_library_first(host: Host, _values: Mapping[str, str]) -> bool | None:
    """The linker finds libcuda of a forward compatibility package before the driver's own."""
    libraries = host.linker.libraries
    if libraries is None or "libcuda.so.1" not in libraries:
        return None
    return "/compat" in libraries["libcuda.so.1"]


def libcuda_missing(host: Host, _values: Mapping[str, str]) -> bool | None:
    return None if host.linker.libraries is None else "libcuda.so.1" not in host.linker.libraries


def devices_hidden(host: Host, _values: Mapping[str, str]) -> bool | None:
    """CUDA_VISIBLE_DEVICES names none."""
    variables = host.linker.variables
    if variables is None or "CUDA_VISIBLE_DEVICES" not in variables:
        return None
    return variables["CUDA_VISIBLE_DEVICES"].strip() in ("", "-1", "none", "NoDevFiles")


def shared_memory_small(host: Host, _values: Mapping[str, str]) -> bool | None:
    return _below(host.limits.shared_memory_bytes, SMALL_SHARED_MEMORY)


def memory_lock_small(host: Host, _values: Mapping[str, str]) -> bool | None:
    return _below(host.limits.memory_lock_bytes, SMALL_MEMORY_LOCK)


def few_open_files(host: Host, _values: Mapping[str, str]) -> bool | None:
    return _below(host.limits.open_files, FEW_OPEN_FILES)


def disk_full(host: Host, _values: Mapping[str, str]) -> bool | None:
    places = (
        host.disk_free_bytes,
        host.limits.container_disk_free_bytes,
        host.limits.temporary_free_bytes,
    )
    known = [free for free in places if free is not None]
    return min(known) < FULL_DISK if known else None


def mig_on(host: Host, _values: Mapping[str, str]) -> bool | None:
    return _any(gpu.mig for gpu in host.gpus or ())


def ecc_errors(host: Host, _values: Mapping[str, str]) -> bool | None:
    return _any(_errors(gpu) for gpu in host.gpus or ())


def compute_prohibited(host: Host, _values: Mapping[str, str]) -> bool | None:
    modes = [gpu.compute_mode for gpu in host.gpus or () if gpu.compute_mode]
    return any(mode != "default" for mode in modes) if modes else None


def two_onnxruntimes(host: Host, _values: Mapping[str, str]) -> bool | None:
    if host.packages is None:
        return None
    names = {name.lower().replace("_", "-") for name in host.packages}
    return len(names & {"onnxruntime", "onnxruntime-gpu", "onnxruntime-directml"}) > 1


MACHINE_FACTS: dict[str, tuple[Fact, str]] = {
    "module_differs": (module_differs, "the host's loaded module and its driver libraries differ in version"),
    "module_matches": (
        module_matches,
        "the host's loaded module and driver libraries are of one version",
    ),
    "nouveau_loaded": (nouveau_loaded, "nouveau holds the host's GPU"),
    "module_not_loaded": (module_not_loaded, "the host's nvidia module is not loaded"),
    "module_open": (module_open, "the host has the open kernel modules"),
    "module_proprietary": (module_proprietary, "the host has the proprietary kernel modules"),
    "dkms_not_built": (dkms_not_built, "the host's DKMS module is not built for the running kernel"),
    "headers_missing": (headers_missing, "the host lacks the headers of the running kernel"),
    "secure_boot": (secure_boot, "Secure Boot is on at the host"),
    "no_secure_boot": (no_secure_boot, "Secure Boot is off at the host"),
    "selinux_enforcing": (selinux_enforcing, "SELinux enforces at the host"),
    "selinux_off": (selinux_off, "SELinux does not enforce at the host"),
    "iommu": (iommu, "the host's IOMMU translates addresses of devices"),
    "no_fabric_manager": (no_fabric_manager, "the host's Fabric Manager does not run"),
    "fabric_manager": (fabric_manager, "the host's Fabric Manager runs"),
    "no_container_toolkit": (no_container_toolkit, "the host has no NVIDIA Container Toolkit"),
    "runtime_not_registered": (runtime_not_registered, "the host's Docker does not know NVIDIA's runtime"),
    "runtime_registered": (runtime_registered, "the host's Docker knows NVIDIA's runtime"),
    "cgroup_loses_devices": (
        cgroup_loses_devices,
        "the host's Docker leaves cgroups to systemd, and /dev/char has no links to the GPU",
    ),
    "cdi_missing": (cdi_missing, "the host has no CDI file"),
    "cdi_stale": (cdi_stale, "the host's CDI file is of another driver version"),
    "docker_snap": (docker_snap, "the host's Docker is a snap"),
    "docker_rootless": (docker_rootless, "the host's Docker is rootless"),
    "docker_refuses": (docker_refuses, "the host's Docker does not answer this user"),
    "compat_library_first": (
        compat_library_first,
        "the host's linker finds a forward compatibility libcuda before the driver's",
    ),
    "libcuda_missing": (libcuda_missing, "the host's linker finds no libcuda"),
    "devices_hidden": (devices_hidden, "CUDA_VISIBLE_DEVICES of the host hides every GPU"),
    "shared_memory_small": (shared_memory_small, "the host's /dev/shm is small"),
    "memory_lock_small": (memory_lock_small, "the host limits locked memory"),
    "few_open_files": (few_open_files, "the host allows few open files"),
    "disk_full": (disk_full, "a disk of the host is full"),
    "mig_on": (mig_on, "MIG is on at the host's GPU"),
    "ecc_errors": (ecc_errors, "the host's GPU counts uncorrected memory errors"),
    "compute_prohibited": (compute_prohibited, "the compute mode of the host's GPU is not the default"),
    "two_onnxruntimes": (two_onnxruntimes, "the host has two packages of ONNX Runtime"),
}


def _errors(gpu: Gpu) -> bool | None:
    seen = (gpu.ecc_uncorrected, gpu.remap_failed, gpu.remap_pending)
    return None if all(one is None for one in seen) else any(bool(one) for one in seen)


def _library_version(host: Host) -> str | None:
    for name in ("libnvidia-ml.so.1", "libcuda.so.1"):
        found = re.search(r"\.so\.(\d+\.\d+(?:\.\d+)?)$", (host.linker.libraries or {}).get(name, ""))
        if found:
            return found[1]
    return None


def _below(value: int | None, limit: int) -> bool | None:
    return None if value is None else 0 <= value < limit


def _any(answers: Iterable[bool | None]) -> bool | None:
    known = [answer for answer in answers if answer is not None]
    return any(known) if known else None


def _not(answer: bool | None) -> bool | None:
    return None if answer is None else not answer

"""An NVIDIA driver is installed.

Everything above it, from CUDA to the serving engine, talks to the GPU through the driver.
"""

from model_optimizer.core import Finding, Host
from model_optimizer.doctor import advice

LAYER = "kernel"
AFTER = ("gpu_hardware",)
SOURCE = ("docs.nvidia.com/datacenter/tesla/driver-installation-guide",)
NAMES = (
    "nvidia-driver",
    "nvidia-open",
    "nvidia-dkms",
    "libnvidia-compute",
    "cuda-drivers",
    "kmod-nvidia",
    "akmod-nvidia",
    "nvidia-kernel",
)


def check(host: Host) -> Finding:
    if found := advice.linux_gpu(host):
        return found
    signs = _signs(host)
    if signs:
        return Finding(status="ok", message=signs[0], evidence="; ".join(signs))
    if host.container:
        return advice.not_here("in a container the host's driver counts")
    if host.modules.packages is None or host.modules.dkms is None:
        return advice.unknown("the installed packages")
    uses = next((a.driver for a in host.adapters or () if a.vendor == "nvidia" and a.driver), None)
    return Finding(
        status="fail",
        message="no NVIDIA driver is installed",
        evidence="no package of it, no module, no libcuda" + (f"; the GPU is run by {uses}" if uses else ""),
        hint=advice.install_driver(host),
    )


def _signs(host: Host) -> list[str]:
    """What shows that there is a driver."""
    found: list[str] = []
    if host.driver_version:
        found.append(f"driver {host.driver_version} answers")
    if host.modules.nvidia_version:
        found.append(f"module {host.modules.nvidia_version} is loaded")
    for name, version in (host.modules.packages or {}).items():
        if name.startswith(NAMES):
            found.append(f"package {name} {version}")
    found += [
        f"DKMS has {version}" for version in (*(host.modules.dkms or ()), *(host.modules.dkms_added or ()))
    ]
    libcuda = (host.linker.libraries or {}).get("libcuda.so.1")
    if libcuda and "compat" not in libcuda:
        found.append(libcuda)
    return found[:4]

"""The loaded module and the driver's libraries are of the same version.

An upgrade (often an unattended one) replaces the libraries while the old module stays loaded; NVML then
reports a mismatch, and nothing starts.
"""

import re

from model_optimizer.core import Finding, Host
from model_optimizer.doctor import advice

LAYER = "driver"
AFTER = ("module_loaded",)
SOURCE = ("NVIDIA/nvidia-docker#584", "NVIDIA/open-gpu-kernel-modules#626")


def check(host: Host) -> Finding:
    if found := advice.linux_gpu(host):
        return found
    loaded, library = host.modules.nvidia_version, _library(host)
    said = advice.messages(host, "API mismatch")
    answers = host.nvml == "ok" and host.driver_version == loaded
    if host.nvml == "version mismatch" or (loaded and library and loaded != library and not answers):
        return Finding(
            status="fail",
            message=f"the loaded module is {loaded or 'of another version'}, the libraries "
            f"are {library or 'newer'}: "
            "the driver was upgraded and not reloaded",
            evidence=said[-1] if said else f"/proc/driver/nvidia/version {loaded}, libnvidia-ml {library}",
            hint=advice.steps(
                host,
                "sudo reboot",
                "without a reboot: stop every program on the GPU, then: "
                "sudo modprobe -r nvidia_uvm nvidia_drm nvidia_modeset nvidia && sudo modprobe nvidia",
                deb=(
                    "sudo reboot",
                    "then keep unattended upgrades away from it: sudo apt-mark hold "
                    "$(dpkg-query -W -f='${Package} ' '*nvidia*')",
                ),
                rhel=("sudo reboot", "then keep upgrades away from it: sudo dnf versionlock '*nvidia*'"),
                container="make this container anew (its libraries are those of the old "
                "driver); when that fails, reboot the host",
            ),
        )
    if answers:
        return Finding(status="ok", message=f"module and libraries are both {loaded}", evidence="NVML")
    if not loaded or not library:
        return (
            advice.unknown("the version of module or library")
            if not host.driver_version
            else Finding(status="ok", message=f"driver {host.driver_version} answers", evidence="NVML")
        )
    return Finding(
        status="ok",
        message=f"module and libraries are both {loaded}",
        evidence="/proc/driver/nvidia/version, libnvidia-ml.so.1",
    )


def _library(host: Host) -> str | None:
    """The version in the name of the file that NVML is, else of libcuda outside the compat folder."""
    files = host.linker.libraries or {}
    for name in ("libnvidia-ml.so.1", "libcuda.so.1"):
        found = re.search(r"\.so\.(\d{3}\.[\d.]*\d)$", files.get(name, ""))
        if found and "compat" not in files[name]:
            return found[1]
    return None

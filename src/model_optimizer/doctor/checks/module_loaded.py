"""The driver's kernel module is loaded.

It is the part of the driver that speaks to the GPU. What can keep it out has been asked before: nouveau,
a module that was not built, Secure Boot, the wrong flavour.
"""

from model_optimizer.core import Finding, Host
from model_optimizer.doctor import advice

LAYER = "kernel"
AFTER = ("nouveau_off", "dkms_built", "secure_boot", "module_flavour")
SOURCE = ("docs.nvidia.com/datacenter/tesla/driver-installation-guide, verify the driver",)


def check(host: Host) -> Finding:
    if found := advice.linux_gpu(host):
        return found
    version = host.modules.nvidia_version
    if version or host.driver_version:
        return Finding(
            status="ok",
            message=f"module {version or host.driver_version} is loaded",
            evidence="/proc/driver/nvidia/version",
        )
    if host.modules.loaded is None:
        return advice.unknown("the list of loaded modules")
    said = advice.messages(host, "NVRM|nvidia")
    return Finding(
        status="fail",
        message="the NVIDIA kernel module is not loaded",
        evidence=said[-1] if said else "/proc/modules does not list nvidia",
        hint=advice.steps(
            host,
            "sudo modprobe nvidia && nvidia-smi",
            "when it fails, its reason stands in: sudo dmesg | tail -30",
            ubuntu=(
                f"sudo apt install linux-modules-nvidia-{advice.branch(host)}-open-$(uname -r)",
                "sudo modprobe nvidia && nvidia-smi",
                "when it fails, its reason stands in: sudo dmesg | tail -30",
            ),
            container="on the host, not in this container: sudo modprobe nvidia && nvidia-smi",
        ),
    )

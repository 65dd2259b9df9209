"""The NVIDIA driver answers.

NVML is its interface for questions; CUDA works when it does. A machine without an NVIDIA GPU is fine for
the CPU engines, so a missing driver is a failure only where there is a GPU.
"""

from model_optimizer.core import Finding, Host
from model_optimizer.doctor import advice

LAYER = "driver"
AFTER = (
    "module_matches_library",
    "device_nodes",
    "container_keeps_devices",
    "wsl_libcuda",
    "wsl_driver_inside",
)
SOURCE = ("NVML documentation",)


def check(host: Host) -> Finding:
    if host.driver_version is not None:
        return Finding(status="ok", message=f"driver {host.driver_version}", evidence="NVML")
    there = advice.has_nvidia(host)
    if there is False:
        return advice.not_here("no NVIDIA GPU here, so no driver is needed")
    why = f"NVML: {host.nvml}" if host.nvml else "NVML could not be started"
    why = "; ".join((why, *advice.messages(host, r"NVRM: Xid|fallen off the bus")[-1:]))
    if host.nvml == "too slow":
        return Finding(
            status="fail",
            message="the driver hangs: it did not answer within 8 s",
            evidence=why,
            hint="reboot; before that, sudo dmesg | grep -i nvrm shows what it hangs on\n"
            "a machine with many GPUs and no persistence mode is slow, too: sudo systemctl "
            "start nvidia-persistenced",
        )
    if there or host.wsl or host.os == "Windows":
        return Finding(
            status="fail",
            message="the NVIDIA driver does not answer",
            evidence=why,
            hint=_hint(host),
        )
    return Finding(
        status="warn",
        message="no NVIDIA driver answered: only CPU engines can run here",
        evidence=why,
        hint="if this machine has an NVIDIA GPU, install its driver and check `nvidia-smi`",
    )


def _hint(host: Host) -> str:
    if host.nvml == "no library" and host.container:
        return "start this container with -e NVIDIA_DRIVER_CAPABILITIES=compute,utility (NVML is utility)"
    if host.nvml == "no permission":
        return "ls -l /dev/nvidia* shows who may; add the user to the group that owns them (video or render)"
    return advice.install_driver(host)

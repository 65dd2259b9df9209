"""The driver shows at least one GPU.

A driver without devices is what a failed board, or a machine whose firmware lacks room for it, looks like.
"""

from model_optimizer.core import Finding, Host
from model_optimizer.doctor import advice

LAYER = "driver"
AFTER = ("driver_present",)
SOURCE = ("NVIDIA/open-gpu-kernel-modules#862", "NVIDIA/open-gpu-kernel-modules#935")


def check(host: Host) -> Finding:
    if host.gpus is None:
        return Finding(status="unknown", message="the GPUs could not be listed")
    if host.driver_version is None and not host.gpus:
        return Finding(status="skipped", message="no driver, so no GPUs to look for")
    if not host.gpus:
        said = advice.messages(host, r"NVRM")
        return Finding(
            status="fail",
            message="the driver answers but shows no GPU",
            evidence=said[0] if said else "NVML counts 0 devices",
            hint=advice.steps(
                host,
                "read the first of the driver's lines: sudo dmesg | grep -m5 NVRM",
                "in the firmware turn on Above 4G Decoding and Resizable BAR, then start cold",
                container="start this container with --gpus all or a CDI device; else look "
                "for Xid in the host's dmesg",
            ),
        )
    names = ", ".join(dict.fromkeys(gpu.name for gpu in host.gpus))
    return Finding(status="ok", message=f"{advice.count(len(host.gpus), 'GPU')}: {names}", evidence="NVML")

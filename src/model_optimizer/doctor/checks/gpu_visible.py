"""The driver shows at least one GPU.

A driver without devices is what a container without `--gpus` or a failed board looks like.
"""

from model_optimizer.core import Finding, Host

AFTER = ("driver_present",)


def check(host: Host) -> Finding:
    if host.gpus is None:
        return Finding(status="unknown", message="the GPUs could not be listed")
    if host.driver_version is None:
        return Finding(status="skipped", message="no driver, so no GPUs to look for")
    if not host.gpus:
        return Finding(
            status="fail",
            message="the driver answers but shows no GPU",
            evidence="NVML counts 0 devices",
            hint="in a container, start it with `--gpus all` or a CDI device; else look for Xid in `dmesg`",
        )
    names = ", ".join(gpu.name for gpu in host.gpus)
    return Finding(status="ok", message=f"{len(host.gpus)} GPU: {names}", evidence="NVML")

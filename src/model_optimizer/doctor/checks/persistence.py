"""A server's driver stays loaded between programs.

Without persistence mode each first program waits for the GPU to start: seconds on a machine with eight.
Settings such as power limits are lost then too.
"""

from model_optimizer.core import Finding, Host
from model_optimizer.doctor import advice

LAYER = "gpu"
AFTER = ("gpu_visible",)
SOURCE = ("docs.nvidia.com/deploy/driver-persistence",)


def check(host: Host) -> Finding:
    gpus = advice.gpus(host)
    if isinstance(gpus, Finding):
        return gpus
    server = [gpu for gpu in gpus if not advice.is_consumer(gpu)]
    if not server or host.os == "Windows" or host.wsl:
        return advice.not_here("matters for data-centre GPUs on Linux")
    off = [gpu for gpu in server if gpu.persistence is False]
    if off:
        return Finding(
            status="warn",
            message=f"{advice.named(host, off)}: persistence mode is off, so the driver "
            "starts anew with each program",
            evidence="NVML: persistence mode",
            hint=advice.steps(
                host,
                "sudo systemctl enable --now nvidia-persistenced",
                container="on the host: sudo systemctl enable --now nvidia-persistenced",
            ),
        )
    if all(gpu.persistence is None for gpu in server):
        return advice.unknown("persistence mode")
    return Finding(status="ok", message="persistence mode is on", evidence="NVML: persistence mode")

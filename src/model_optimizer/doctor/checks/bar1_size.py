"""GPUs that must talk over PCIe can reach each other's whole memory.

Peer access over PCIe goes through BAR1. Without Resizable BAR it shows 256 MiB, and NCCL takes the way
through the host's memory.
"""

from model_optimizer.core import Finding, Host, units
from model_optimizer.doctor import advice

LAYER = "gpu"
AFTER = ("gpu_visible",)
SOURCE = ("docs.nvidia.com/cuda/gpudirect-rdma, BAR sizes", "NVIDIA/open-gpu-kernel-modules#935")


def check(host: Host) -> Finding:
    gpus = advice.gpus(host)
    if isinstance(gpus, Finding):
        return gpus
    if len(gpus) < 2 or any(gpu.nvlinks_up for gpu in gpus):
        return advice.not_here("matters only for several GPUs without NVLink")
    known = [gpu for gpu in gpus if gpu.bar1_bytes and gpu.memory_bytes]
    if not known:
        return advice.unknown("the size of BAR1")
    small = [gpu for gpu in known if (gpu.bar1_bytes or 0) < (gpu.memory_bytes or 0) // 2]
    evidence = (
        f"BAR1 {units.show_bytes(known[0].bar1_bytes)}, memory {units.show_bytes(known[0].memory_bytes)}"
    )
    if small:
        return Finding(
            status="warn",
            message=f"{advice.named(host, small)}: BAR1 shows "
            f"{units.show_bytes(small[0].bar1_bytes)} only, so GPUs exchange "
            "data through the host",
            evidence=evidence,
            hint="turn on Above 4G Decoding and Resizable BAR in the firmware",
        )
    return Finding(status="ok", message="BAR1 shows the whole memory", evidence=evidence)

"""Nothing stands between GPUs that talk over PCIe.

On bare metal an active IOMMU sends traffic between GPUs through the root complex; NCCL then hangs or
returns wrong data. NCCL_P2P_DISABLE=1 avoids that at the cost of speed.
"""

from model_optimizer.core import Finding, Host
from model_optimizer.doctor import advice

LAYER = "network"
AFTER = ("gpu_visible",)
SOURCE = (
    "NCCL documentation, troubleshooting: PCI access control services (ACS)",
    "vLLM docs, troubleshooting: hangs in NCCL",
)


def check(host: Host) -> Finding:
    if len(host.gpus or ()) < 2:
        return advice.not_here("one GPU at most")
    if any(gpu.nvlinks_up for gpu in host.gpus or ()):
        return advice.not_here("GPUs talk over NVLink")
    off = (host.linker.variables or {}).get("NCCL_P2P_DISABLE")
    if off == "1":
        return Finding(
            status="warn",
            message="NCCL_P2P_DISABLE=1: GPUs exchange data through the host's memory",
            evidence=f"NCCL_P2P_DISABLE={off}",
            hint="when it was set against a hang, test without it: unset NCCL_P2P_DISABLE",
        )
    if host.platform.iommu is None:
        return advice.unknown("whether an IOMMU is active")
    if host.platform.iommu and not host.container:
        return Finding(
            status="warn",
            message="an IOMMU is active: traffic between GPUs over PCIe may hang or be slow",
            evidence="/sys/kernel/iommu_groups: addresses are translated (DMA)",
            hint="when tensor parallelism hangs: add iommu=pt to the kernel's command line "
            "and turn off ACS in the firmware\n"
            "to be sure that it is this: NCCL_P2P_DISABLE=1 ends the hang",
        )
    return Finding(
        status="ok",
        message="no IOMMU between the GPUs",
        evidence="/sys/class/iommu, /sys/kernel/iommu_groups",
    )

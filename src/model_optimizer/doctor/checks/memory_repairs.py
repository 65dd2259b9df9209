"""No memory row of the GPU waits for a repair, and none could not be repaired.

From Ampere on a bad row is replaced by a spare at the next reset; older GPUs retire whole pages, up to 64
of them.
"""

from model_optimizer.core import Finding, Host
from model_optimizer.doctor import advice

LAYER = "gpu"
AFTER = ("ecc_errors",)
SOURCE = (
    "docs.nvidia.com/deploy/a100-gpu-mem-error-mgmt, row remapping",
    "docs.nvidia.com/deploy/dynamic-page-retirement",
)
MOST_PAGES = 60  # the driver refuses after 64


def check(host: Host) -> Finding:
    gpus = advice.gpus(host)
    if isinstance(gpus, Finding):
        return gpus
    failed = [gpu for gpu in gpus if gpu.remap_failed or (gpu.retired_pages or 0) >= MOST_PAGES]
    if failed:
        return Finding(
            status="fail",
            message=f"{advice.named(host, failed)}: memory that can no longer be repaired",
            evidence="NVML: a row could not be remapped, or the retired pages are used up",
            hint="take this GPU out of use and have it replaced",
        )
    pending = [gpu for gpu in gpus if gpu.remap_pending]
    if pending:
        return Finding(
            status="warn",
            message=f"{advice.named(host, pending)}: a bad row of memory waits for the next reset",
            evidence="NVML: row remapping pending",
            hint="when the GPU is idle, or by a reboot:\n"
            f"sudo nvidia-smi --gpu-reset -i {advice.places(host, pending)}",
        )
    if all(gpu.remap_failed is None and gpu.retired_pages is None for gpu in gpus):
        return advice.not_here("this GPU does not report repairs of its memory")
    return Finding(status="ok", message="no repair of memory is due", evidence="NVML")

"""All NVLinks of the GPU are up.

A link that is down makes the traffic of tensor parallelism slower, and of an uneven machine all GPUs wait.
"""

from model_optimizer.core import Finding, Host
from model_optimizer.doctor import advice

LAYER = "gpu"
AFTER = ("gpu_visible",)
SOURCE = ("nvidia-smi manual, nvlink --status", "NVIDIA's catalogue of Xid errors, 74")


def check(host: Host) -> Finding:
    gpus = advice.gpus(host)
    if isinstance(gpus, Finding):
        return gpus
    linked = [gpu for gpu in gpus if gpu.nvlinks]
    if not linked or len(gpus) < 2:
        return advice.not_here("no NVLink between GPUs here")
    down = [gpu for gpu in linked if (gpu.nvlinks_up or 0) < (gpu.nvlinks or 0)]
    evidence = ", ".join(f"{gpu.nvlinks_up} of {gpu.nvlinks}" for gpu in linked)
    if down:
        return Finding(
            status="warn",
            message=f"{advice.named(host, down)}: {down[0].nvlinks_up} of {down[0].nvlinks} NVLinks are up",
            evidence=evidence,
            hint=f"nvidia-smi nvlink --status -i {advice.places(host, down)}\n"
            "check the bridge or board, and look for Xid 74 in the kernel log",
        )
    return Finding(status="ok", message=f"{linked[0].nvlinks_up} NVLinks up on each GPU", evidence=evidence)

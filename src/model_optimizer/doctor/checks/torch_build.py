"""PyTorch is a build for the GPU where there is one.

The CPU build comes from another index and imports without complaint; it says only that CUDA is not
available.
"""

from model_optimizer.core import Finding, Host
from model_optimizer.doctor import advice

LAYER = "packages"
AFTER = ("gpu_visible",)
SOURCE = ("pytorch.org, get started (builds by platform)",)


def check(host: Host) -> Finding:
    torch = (host.packages or {}).get("torch")
    if torch is None:
        return advice.not_here("no PyTorch in this environment")
    if not host.gpus:
        return advice.not_here("no NVIDIA GPU here")
    if "+cpu" in torch or "+rocm" in torch or "+xpu" in torch:
        return Finding(
            status="warn",
            message=f"torch {torch} does not use the GPU of this machine",
            evidence=f"torch {torch}",
            hint=f"pip install --force-reinstall torch=={torch.partition('+')[0]}",
        )
    return Finding(status="ok", message=f"torch {torch}", evidence="its version names no other build")

"""ECC is on where the GPU has it.

A data-centre GPU with ECC turned off gives wrong numbers without a word when a memory cell fails.
"""

from model_optimizer.core import Finding, Host
from model_optimizer.doctor import advice

LAYER = "gpu"
AFTER = ("gpu_visible",)
SOURCE = ("nvidia-smi manual, --ecc-config", "docs.nvidia.com/deploy/dynamic-page-retirement")


def check(host: Host) -> Finding:
    gpus = advice.gpus(host)
    if isinstance(gpus, Finding):
        return gpus
    off = [gpu for gpu in gpus if gpu.ecc is False and not advice.is_consumer(gpu)]
    if off:
        return Finding(
            status="warn",
            message=f"{advice.named(host, off)}: ECC is off, so memory errors stay unseen",
            evidence="NVML: ECC mode",
            hint="sudo nvidia-smi --ecc-config=1, then reboot",
        )
    if all(gpu.ecc is None for gpu in gpus):
        return advice.not_here("this GPU has no ECC to turn on")
    return Finding(status="ok", message="ECC is on, or not meant for this GPU", evidence="NVML: ECC mode")

"""Programs may use the GPU, and more than one at a time.

In mode Prohibited no CUDA program starts; in Exclusive the second one fails, and servers with several
processes do.
"""

from model_optimizer.core import Finding, Host
from model_optimizer.doctor import advice

LAYER = "gpu"
AFTER = ("gpu_visible",)
SOURCE = ("nvidia-smi manual, --compute-mode",)


def check(host: Host) -> Finding:
    gpus = advice.gpus(host)
    if isinstance(gpus, Finding):
        return gpus
    modes = {gpu.compute_mode for gpu in gpus}
    if modes == {None}:
        return advice.unknown("the compute mode")
    for mode, status, what in (
        ("prohibited", "fail", "CUDA programs may not use it"),
        ("exclusive", "warn", "only one process at a time may use it"),
    ):
        held = [gpu for gpu in gpus if gpu.compute_mode == mode]
        if held:
            return Finding(
                status="fail" if status == "fail" else "warn",
                message=f"{advice.named(host, held)} is in compute mode {mode}: {what}",
                evidence="NVML: compute mode",
                hint="sudo nvidia-smi --compute-mode=0",
            )
    return Finding(status="ok", message="programs may share the GPU", evidence="NVML: compute mode default")

"""The GPU's memory has no uncorrectable errors.

ECC counts errors that it could not repair since the driver was loaded. Data that was computed since is in
doubt.
"""

from model_optimizer.core import Finding, Host
from model_optimizer.doctor import advice

LAYER = "gpu"
AFTER = ("gpu_visible",)
SOURCE = ("docs.nvidia.com/deploy/dynamic-page-retirement", "leptonai/gpud#100")


def check(host: Host) -> Finding:
    gpus = advice.gpus(host)
    if isinstance(gpus, Finding):
        return gpus
    bad = [gpu for gpu in gpus if gpu.ecc_uncorrected]
    if bad:
        return Finding(
            status="fail",
            message=f"{advice.named(host, bad)}: {sum(g.ecc_uncorrected or 0 for g in bad)} "
            "uncorrectable memory errors",
            evidence="NVML: uncorrected ECC errors since the driver was loaded",
            hint="take the work off it and reset it:\n"
            f"sudo nvidia-smi --gpu-reset -i {advice.places(host, bad)}\n"
            "when they come back, have the GPU replaced",
        )
    if all(gpu.ecc_uncorrected is None for gpu in gpus):
        return advice.not_here("this GPU does not count ECC errors")
    return Finding(status="ok", message="no uncorrectable memory errors", evidence="NVML")

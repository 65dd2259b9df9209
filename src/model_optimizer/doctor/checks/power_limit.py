"""The power limit is the one the GPU was sold with.

A lowered limit (set by nvidia-smi, a rack's budget or a laptop's profile) makes the GPU slower than its
datasheet.
"""

from model_optimizer.core import Finding, Host
from model_optimizer.doctor import advice

LAYER = "gpu"
AFTER = ("gpu_visible",)
SOURCE = ("nvidia-smi manual, power limits",)
SHARE = 0.95


def check(host: Host) -> Finding:
    gpus = advice.gpus(host)
    if isinstance(gpus, Finding):
        return gpus
    known = [gpu for gpu in gpus if gpu.power_limit_w and gpu.power_limit_default_w]
    if not known:
        return advice.unknown("the default power limit")
    low = [gpu for gpu in known if (gpu.power_limit_w or 0) < SHARE * (gpu.power_limit_default_w or 0)]
    evidence = ", ".join(f"{gpu.power_limit_w:g} W of {gpu.power_limit_default_w:g} W" for gpu in known)
    if low:
        return Finding(
            status="warn",
            message=f"{advice.named(host, low)}: limited to {low[0].power_limit_w:g} W, "
            f"{low[0].power_limit_default_w:g} W is its default",
            evidence=evidence,
            hint=f"sudo nvidia-smi -i {advice.places(host, low)} -pl {low[0].power_limit_default_w:g}"
            "   # when nobody lowered it on purpose",
        )
    return Finding(status="ok", message=f"power limit {known[0].power_limit_w:g} W", evidence=evidence)

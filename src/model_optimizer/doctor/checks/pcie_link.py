"""The PCIe link has all its lanes.

A card in the wrong slot, a riser, or a dirty contact halves or quarters the lanes: loading weights and
traffic between GPUs slow down by as much. (The generation falls when the GPU is idle; that is power
saving.)
"""

import re

from model_optimizer.core import Finding, Gpu, Host
from model_optimizer.doctor import advice

LAYER = "gpu"
AFTER = ("gpu_visible",)
SOURCE = ("nvidia-smi manual, PCIe link width: maximum of GPU and slot together",)


def check(host: Host) -> Finding:
    gpus = advice.gpus(host)
    if isinstance(gpus, Finding):
        return gpus
    known = [gpu for gpu in gpus if _lanes(gpu.pcie) and _lanes(gpu.pcie_max)]
    if not known:
        return advice.unknown("the PCIe link")
    evidence = ", ".join(f"{gpu.pcie} of {gpu.pcie_max}" for gpu in known)
    narrow = [gpu for gpu in known if _is_narrow(gpu)]
    if narrow:
        return Finding(
            status="warn",
            message=f"{advice.named(host, narrow)}: PCIe {narrow[0].pcie}, {narrow[0].pcie_max} is possible",
            evidence=evidence,
            hint="seat the card again, move it to the slot with most lanes, check the riser "
            "and the firmware's slot settings",
        )
    return Finding(status="ok", message=f"PCIe {known[0].pcie}", evidence=evidence)


def _is_narrow(gpu: Gpu) -> bool:
    """Fewer lanes; or, under load, an older generation."""
    now, best = gpu.pcie or "", gpu.pcie_max or ""
    slower = now.partition(".")[0] < best.partition(".")[0] and gpu.throttle == ()
    return _lanes(now) < _lanes(best) or slower


def _lanes(link: str | None) -> int:
    found = re.search(r"x(\d+)", link or "")
    return int(found[1]) if found else 0

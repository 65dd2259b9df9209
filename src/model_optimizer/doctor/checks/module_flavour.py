"""The kernel modules are of the flavour that this GPU needs.

The open modules serve Turing and newer, and Blackwell takes no others. Maxwell, Pascal and Volta need the
proprietary ones, whose last branch is 580.
"""

from model_optimizer.core import Finding, Host
from model_optimizer.doctor import advice
from model_optimizer.facts import drivers

LAYER = "kernel"
AFTER = ("driver_installed",)
SOURCE = (
    "docs.nvidia.com/datacenter/tesla/driver-installation-guide, kernel modules, editions 610 and 620",
    "github.com/NVIDIA/open-gpu-kernel-modules README, table of GPUs",
    "NVIDIA/open-gpu-kernel-modules#872",
)
SAYS_OPEN = r"requires use of the NVIDIA open kernel modules"
SAYS_CLOSED = r"not supported by (?:the )?open|open.*kernel modules.*not supported"


def check(host: Host) -> Finding:
    if found := advice.linux_gpu(host):
        return found
    wanted = _wanted(host)
    flavour = {True: "open", False: "proprietary", None: None}[_is_open(host)]
    said = advice.messages(host, f"{SAYS_OPEN}|{SAYS_CLOSED}")
    if wanted is None or flavour is None:
        return advice.unknown("the flavour of the kernel modules")
    if wanted == "any" or wanted == flavour:
        return Finding(
            status="ok",
            message=f"{flavour} kernel modules, which this GPU takes",
            evidence="/proc/driver/nvidia/version",
        )
    which = (
        "is Blackwell or newer, which only the open ones serve"
        if wanted == "open"
        else "is older than Turing, which only the proprietary ones serve"
    )
    return Finding(
        status="fail",
        message=f"the kernel modules are the {flavour} ones, and this GPU {which}",
        evidence=said[-1] if said else "packages and PCI number of the GPU",
        hint=advice.install_driver(host, proprietary=wanted == "proprietary"),
    )


def _is_open(host: Host) -> bool | None:
    if host.modules.open is not None:
        return host.modules.open
    names = " ".join(host.modules.packages or ())
    return None if "nvidia" not in names else "-open" in names


def _wanted(host: Host) -> str | None:
    """open, proprietary or any, by the PCI numbers of the GPUs here."""
    here = [a for a in advice.nvidia_adapters(host) if a.driver in ("nvidia", None)]
    rows = [drivers.generation(adapter.device) for adapter in here]
    if not rows:
        return None
    if any(row and row.open_modules == "required" for row in rows):
        return "open"
    return "proprietary" if all(row is None for row in rows) else "any"

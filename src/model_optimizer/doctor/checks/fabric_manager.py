"""On a machine with NVSwitch the fabric manager runs.

Without it CUDA does not start on any of its GPUs (error 802, system not yet initialized).
"""

from model_optimizer.core import Finding, Host
from model_optimizer.doctor import advice

LAYER = "driver"
AFTER = ("module_loaded",)
SOURCE = (
    "docs.nvidia.com/datacenter/tesla/fabric-manager-user-guide",
    "pytorch/pytorch#35710",
    "dstackai/dstack#2348",
)


def check(host: Host) -> Finding:
    switches = sum(a.kind == "switch" for a in host.adapters or ())
    if not switches:
        return advice.not_here("no NVSwitch here")
    if host.container or host.platform.fabric_manager is None:
        return advice.unknown("whether the host's fabric manager runs")
    if host.platform.fabric_manager:
        return Finding(
            status="ok",
            message="the fabric manager runs",
            evidence=f"{switches} NVSwitches, nv-fabricmanager",
        )
    package = f"nvidia-fabricmanager-{advice.branch(host)}"
    return Finding(
        status="fail",
        message="there are NVSwitches and no fabric manager: CUDA will not start (error 802)",
        evidence=f"{switches} NVSwitches on the PCI bus, no process nv-fabricmanager",
        hint=advice.steps(
            host,
            "install the fabric manager of exactly the driver's version, then: sudo "
            "systemctl enable --now nvidia-fabricmanager",
            deb=(
                f"sudo apt install {package}   # of exactly the driver's version",
                "sudo systemctl enable --now nvidia-fabricmanager",
            ),
            rhel=(
                "sudo dnf install nvidia-fabric-manager   # of exactly the driver's version",
                "sudo systemctl enable --now nvidia-fabricmanager",
            ),
        ),
    )

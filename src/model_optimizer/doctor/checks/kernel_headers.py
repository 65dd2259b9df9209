"""The headers of the running kernel are there, so that the driver's module can be built for it.

A kernel upgrade without its headers leaves the new kernel without the module: the GPU is gone after the
reboot.
"""

from model_optimizer.core import Finding, Host
from model_optimizer.doctor import advice

LAYER = "kernel"
AFTER = ("driver_installed",)
SOURCE = ("docs.nvidia.com/datacenter/tesla/driver-installation-guide, kernel headers", "dkms(8)")


def check(host: Host) -> Finding:
    if found := advice.linux_gpu(host):
        return found
    built, waiting = host.modules.dkms, host.modules.dkms_added
    if not built and not waiting:
        return advice.not_here("the module does not come from DKMS")
    if host.modules.headers is None:
        return advice.unknown("the folder of the kernel's headers")
    if host.modules.headers:
        return Finding(
            status="ok", message=f"headers of {host.kernel} are there", evidence="/lib/modules/*/build"
        )
    missing = f"/lib/modules/{host.kernel}/build is not there"
    if waiting and not built:
        return Finding(
            status="fail",
            message=f"no headers for the running kernel {host.kernel}: DKMS cannot build the driver's module",
            evidence=f"{missing}; DKMS has nvidia {', '.join(waiting)} only added",
            hint=advice.rebuild_modules(host),
        )
    return Finding(
        status="warn",
        message=f"no headers for kernel {host.kernel}: the next driver update cannot build its module",
        evidence=missing,
        hint=advice.rebuild_modules(host),
    )

"""DKMS built the driver's module for the running kernel.

Builds fail when the driver is older than the kernel's interfaces, or the compiler is not the kernel's own.
"""

from model_optimizer.core import Finding, Host
from model_optimizer.doctor import advice

LAYER = "kernel"
AFTER = ("kernel_headers",)
SOURCE = ("dkms(8)", "mattshma/bigdata#133")


def check(host: Host) -> Finding:
    if found := advice.linux_gpu(host):
        return found
    built, waiting = host.modules.dkms, host.modules.dkms_added
    if built is None or waiting is None:
        return advice.unknown("DKMS's tree")
    if built:
        return Finding(
            status="ok",
            message=f"module {', '.join(built)} was built for {host.kernel}",
            evidence="/var/lib/dkms",
        )
    if not waiting or host.modules.nvidia_version:
        return advice.not_here("the module does not come from DKMS")
    version = waiting[-1]
    return Finding(
        status="fail",
        message=f"DKMS did not build module {version} for the running kernel {host.kernel}",
        evidence=f"/var/lib/dkms/nvidia/{version} has no folder of this kernel with a module",
        hint=f"sudo dkms install nvidia/{version} -k {host.kernel}\n"
        f"when that fails, read the end of /var/lib/dkms/nvidia/{version}/build/make.log\n"
        "a driver older than the kernel needs a newer branch; until then start the previous kernel",
    )

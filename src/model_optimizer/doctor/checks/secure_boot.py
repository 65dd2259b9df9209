"""Secure Boot accepts the driver's module.

With Secure Boot the kernel loads only modules signed by a key that the firmware knows. Switching Secure
Boot off is one way; enrolling the key that signed the module is the other.
"""

from model_optimizer.core import Finding, Host
from model_optimizer.doctor import advice

LAYER = "kernel"
AFTER = ("dkms_built",)
SOURCE = ("mokutil(1)", "linux-surface/linux-surface#906", "lcp/mokutil#69")
REJECTED = (
    r"key was rejected|Loading of (?:unsigned )?module.*rejected|Required key not available"
    r"|Lockdown:.*(?:nvidia|modprobe).*unsigned"
)


def check(host: Host) -> Finding:
    if found := advice.linux_gpu(host):
        return found
    if host.platform.secure_boot is None:
        return advice.unknown("whether Secure Boot is on")
    if not host.platform.secure_boot:
        return Finding(
            status="ok", message="Secure Boot is off", evidence="the firmware's variable SecureBoot"
        )
    if host.modules.nvidia_version:
        return Finding(
            status="ok",
            message="Secure Boot is on and accepts the module",
            evidence=f"module {host.modules.nvidia_version} is loaded",
        )
    said = advice.messages(host, REJECTED)
    if not said and host.modules.messages is None:
        return advice.unknown("whether Secure Boot refused the module (the kernel log)")
    if not said:
        return Finding(status="ok", message="Secure Boot is on; no module was refused", evidence="kernel log")
    return Finding(
        status="fail",
        message="Secure Boot refuses the driver's module: its key is not enrolled",
        evidence=said[-1],
        hint=advice.steps(
            host,
            "sudo mokutil --import /var/lib/dkms/mok.pub   # choose a password for one use",
            "sudo reboot, and in the blue screen: Enroll MOK, Continue, that password",
            "afterwards: mokutil --test-key /var/lib/dkms/mok.pub; nvidia-smi",
            ubuntu=(
                "sudo apt install mokutil && sudo mokutil --import "
                "/var/lib/shim-signed/mok/MOK.der   # a password for one use",
                "sudo reboot, and in the blue screen: Enroll MOK, Continue, that password",
                "afterwards: nvidia-smi",
            ),
        ),
    )

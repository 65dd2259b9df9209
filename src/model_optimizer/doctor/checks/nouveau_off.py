"""The open-source driver nouveau does not hold the GPU.

A GPU has one driver. While nouveau holds it, NVIDIA's module loads and finds no device, or is not loaded
at all.
"""

from model_optimizer.core import Finding, Host
from model_optimizer.doctor import advice

LAYER = "kernel"
AFTER = ("driver_installed",)
SOURCE = (
    "docs.nvidia.com/datacenter/tesla/driver-installation-guide, disable nouveau",
    "mattshma/bigdata#133",
)


def check(host: Host) -> Finding:
    if found := advice.linux_gpu(host):
        return found
    if host.modules.loaded is None:
        return advice.unknown("the list of loaded modules")
    held = [a for a in host.adapters or () if a.vendor == "nvidia" and a.driver in ("nouveau", "nova_core")]
    if any(a.driver == "nvidia" for a in advice.nvidia_adapters(host)) or host.driver_version:
        return Finding(status="ok", message="NVIDIA's driver holds the GPU", evidence="/sys/bus/pci")
    if not held and not {"nouveau", "nova_core"} & set(host.modules.loaded):
        return Finding(status="ok", message="nouveau is not loaded", evidence="/proc/modules")
    name = held[0].driver if held else "nouveau"
    rebuild = advice.steps(
        host,
        "rebuild the initial RAM disk of this system",
        deb="sudo update-initramfs -u",
        rhel="sudo dracut --force",
    )
    return Finding(
        status="fail",
        message=f"{name} holds the GPU, so NVIDIA's driver cannot",
        evidence=f"/proc/modules lists {name}"
        + (f"; PCI device {held[0].device} is bound to it" if held else ""),
        hint="printf 'blacklist nouveau\\noptions nouveau modeset=0\\n' | sudo tee "
        "/etc/modprobe.d/blacklist-nouveau.conf\n"
        f"{rebuild}\nsudo reboot",
    )

"""SELinux lets containers use the GPU.

In enforcing mode a container may not open the device nodes unless the boolean container_use_devices is on
(or its label is off). There is no boolean container_use_nvidia.
"""

from model_optimizer.core import Finding, Host
from model_optimizer.doctor import advice

LAYER = "containers"
AFTER = ("container_toolkit",)
SOURCE = ("container-selinux, container.te (container_use_devices)", "NVIDIA/nvidia-container-toolkit#33")
BOOLEAN = "container_use_devices"


def check(host: Host) -> Finding:
    if host.os not in ("Linux", None) or host.wsl or host.container:
        return advice.not_here("a matter of the Linux host")
    state = host.platform.selinux
    if state is None:
        return advice.unknown("the state of SELinux")
    if state != "enforcing":
        return Finding(status="ok", message=f"SELinux is {state}", evidence="/sys/fs/selinux/enforce")
    if not host.container_runtimes or not host.gpus:
        return advice.not_here("no container engine with a GPU here")
    value = (host.platform.selinux_booleans or {}).get(BOOLEAN)
    denied = advice.messages(host, r"avc:\s+denied.*(?:nvidia|xserver_misc_device|container_t)")
    if value:
        return Finding(
            status="ok", message=f"SELinux is enforcing, {BOOLEAN} is on", evidence=f"{BOOLEAN} on"
        )
    if value is None:
        there = "is not there" if host.platform.selinux_booleans is not None else "could not be read"
        hint = "sudo dnf install container-selinux, then: sudo setsebool -P container_use_devices 1"
    else:
        there, hint = "is off", f"sudo setsebool -P {BOOLEAN} 1"
    return Finding(
        status="fail" if denied else "warn",
        message=f"SELinux {'denied' if denied else 'will deny'} containers the GPU: the "
        f"boolean {BOOLEAN} {there}",
        evidence=denied[-1] if denied else f"enforcing; {BOOLEAN} {there}",
        hint=f"{hint}\nfor one container only: --security-opt label=disable",
    )

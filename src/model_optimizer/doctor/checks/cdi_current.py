"""The CDI file describes the driver that is loaded.

The file names the driver's libraries with their version. After a driver upgrade those files are gone, and
a container with a CDI device does not start.
"""

from model_optimizer.core import Finding, Host
from model_optimizer.doctor import advice

LAYER = "containers"
AFTER = ("container_toolkit", "module_matches_library")
SOURCE = (
    "docs.nvidia.com/datacenter/cloud-native/container-toolkit, CDI support",
    "warmshao/FasterLivePortrait#116",
)


def check(host: Host) -> Finding:
    if not host.containers.cdi:
        return (
            advice.not_here("no CDI file of NVIDIA")
            if host.containers.cdi is not None
            else advice.unknown("the CDI files")
        )
    loaded = host.driver_version or host.modules.nvidia_version
    known = {path: version for path, version in host.containers.cdi.items() if version}
    if loaded is None or not known:
        return advice.unknown("the driver version of the CDI file")
    stale = [path for path, version in known.items() if version != loaded]
    evidence = (
        ", ".join(f"{path} names {version}" for path, version in known.items()) + f"; loaded is {loaded}"
    )
    if stale:
        return Finding(
            status="fail",
            message=f"the CDI file is of driver {known[stale[0]]}, loaded is {loaded}: "
            "containers with it do not start",
            evidence=evidence,
            hint=f"sudo nvidia-ctk cdi generate --output={stale[0]}",
        )
    return Finding(status="ok", message=f"the CDI file is of driver {loaded}", evidence=evidence)

"""A container gets the driver's libraries for computing.

NVIDIA_DRIVER_CAPABILITIES says which libraries the runtime puts in; CUDA needs `compute`, and nvidia-smi
`utility`.
"""

from model_optimizer.core import Finding, Host
from model_optimizer.doctor import advice

LAYER = "cuda"
AFTER = ("device_nodes",)
SOURCE = (
    "docs.nvidia.com/datacenter/cloud-native/container-toolkit, driver capabilities",
    "NVIDIA/nvidia-docker#1551",
)


def check(host: Host) -> Finding:
    value = (host.linker.variables or {}).get("NVIDIA_DRIVER_CAPABILITIES")
    if not host.container or value is None:
        return advice.not_here("no container that says which libraries it wants")
    have = {word.strip() for word in value.split(",")}
    shown = f"NVIDIA_DRIVER_CAPABILITIES={value}"
    missing = [] if "all" in have else [name for name in ("compute", "utility") if name not in have]
    if missing:
        return Finding(
            status="fail",
            message=f"this container does not ask for the driver's libraries for {' and '.join(missing)}",
            evidence=shown,
            hint="start it with -e NVIDIA_DRIVER_CAPABILITIES=compute,utility",
        )
    return Finding(status="ok", message="the container asks for compute and utility", evidence=shown)

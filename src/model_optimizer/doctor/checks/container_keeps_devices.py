"""A container still has the devices that it was started with.

When systemd reloads its units, a container whose devices it does not know loses them: the nodes are there
and opening them is refused (NVML: Unknown Error).
"""

from model_optimizer.core import Finding, Host
from model_optimizer.doctor import advice

LAYER = "driver"
AFTER = ("device_nodes", "module_matches_library")
SOURCE = (
    "NVIDIA/nvidia-docker#1730",
    "NVIDIA/nvidia-container-toolkit#48",
    "NVIDIA/nvidia-container-toolkit#1227",
)


def check(host: Host) -> Finding:
    if host.container is None or host.nvml is None:
        return advice.unknown("whether this is a container with a GPU")
    if not host.container or not (host.modules.device_nodes or host.gpus):
        return advice.not_here("no container with a GPU")
    if host.nvml == "unknown error" and host.modules.device_nodes:
        return Finding(
            status="fail",
            message="this container lost its GPU while it ran (systemctl daemon-reload does that)",
            evidence="NVML: Unknown Error, though /dev has " + ", ".join(host.modules.device_nodes[:3]),
            hint="start the container anew; it gets the devices back\n"
            "to end it for good, on the host: sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml, "
            "and start containers with --device nvidia.com/gpu=all\n"
            "or: sudo nvidia-ctk system create-dev-char-symlinks --create-all",
        )
    return Finding(
        status="ok", message="the container's devices can be opened", evidence=f"NVML: {host.nvml}"
    )

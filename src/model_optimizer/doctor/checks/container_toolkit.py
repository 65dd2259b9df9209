"""NVIDIA's toolkit for containers is installed.

It puts the host's driver libraries and device nodes into a container. Without it Docker answers: could
not select device driver with capabilities gpu.
"""

from model_optimizer.core import Finding, Host
from model_optimizer.doctor import advice

LAYER = "containers"
AFTER = ("gpu_visible", "docker_packaging")
SOURCE = (
    "docs.nvidia.com/datacenter/cloud-native/container-toolkit, install guide",
    "NVIDIA/nvidia-docker#1034",
)


def check(host: Host) -> Finding:
    if host.container_runtimes is None:
        return advice.unknown("the container engines")
    if not host.container_runtimes:
        return advice.not_here("no Docker or Podman here")
    if not host.gpus:
        return advice.not_here("no NVIDIA GPU to hand to a container")
    if host.container:
        return advice.not_here("a container cannot see the host's toolkit")
    version = host.containers.toolkit
    if version is None:
        return advice.unknown("the container toolkit")
    if version or host.os == "Windows":
        return Finding(
            status="ok", message=f"NVIDIA Container Toolkit {version}", evidence="nvidia-ctk --version"
        )
    if "nvidia" in (host.containers.runtimes or ()):
        return Finding(status="ok", message="Docker has the runtime `nvidia`", evidence="docker info")
    return Finding(
        status="warn" if host.wsl else "fail",  # Docker Desktop brings its own
        message=f"{host.container_runtimes[0]} is here and NVIDIA's container toolkit is not: "
        "containers get no GPU",
        evidence="no nvidia-ctk and no nvidia-container-runtime on PATH",
        hint=advice.install_container_toolkit(host),
    )

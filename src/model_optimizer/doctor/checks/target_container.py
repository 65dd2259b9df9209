"""An image that shall run will find the GPU in its container.

It needs an engine for containers, and NVIDIA's toolkit registered with it.
"""

from model_optimizer.core import Finding, Host
from model_optimizer.core.target import Target
from model_optimizer.doctor import advice

LAYER = "target"
TARGETED = True
AFTER = ("container_toolkit", "runtime_registered", "cdi_current", "selinux_allows")
SOURCE = ("docs.nvidia.com/datacenter/cloud-native/container-toolkit",)


def check(host: Host, target: Target | None = None) -> Finding:
    if target is None or not target.images:
        return advice.not_here("no image is meant")
    if host.container:
        return advice.not_here("from inside a container the host's engine cannot be seen")
    if host.container_runtimes is None:
        return advice.unknown("the container engines")
    if not host.container_runtimes:
        return Finding(
            status="fail",
            message=f"there is no Docker or Podman to run {target.images[0].asked} with",
            evidence="neither docker nor podman nor nerdctl on PATH",
            hint=advice.steps(
                host,
                "install Docker (docs.docker.com/engine/install), then nvidia-container-toolkit",
                rhel="sudo dnf install podman nvidia-container-toolkit && sudo nvidia-ctk "
                "cdi generate --output=/etc/cdi/nvidia.yaml",
            ),
        )
    return Finding(
        status="ok",
        message=f"{host.container_runtimes[0]} can run it",
        evidence=", ".join(host.container_runtimes),
    )

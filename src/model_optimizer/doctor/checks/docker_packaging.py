"""Docker is not the snap.

Docker from Ubuntu's snap keeps its configuration elsewhere and cannot reach the host's driver files, so
NVIDIA's runtime does not work with it.
"""

from model_optimizer.core import Finding, Host
from model_optimizer.doctor import advice

LAYER = "containers"
AFTER: tuple[str, ...] = ()
SOURCE = ("NVIDIA/nvidia-docker#1243", "NVIDIA/nvidia-docker#1642")


def check(host: Host) -> Finding:
    if not advice.has_docker(host):
        return advice.not_here("no Docker here")
    if host.containers.docker_snap is None:
        return advice.unknown("where Docker was installed from")
    if host.containers.docker_snap and advice.has_nvidia(host):
        return Finding(
            status="fail",
            message="Docker is the snap, which cannot hand a GPU to a container",
            evidence="docker is found below /snap",
            hint="sudo snap remove docker\ninstall docker-ce from Docker's own repository "
            "(docs.docker.com/engine/install)",
        )
    return Finding(status="ok", message="Docker is an ordinary package", evidence="not below /snap")

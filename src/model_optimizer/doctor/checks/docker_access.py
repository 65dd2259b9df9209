"""The user may speak to the Docker daemon.

The client is there and the daemon does not answer: it does not run, or its socket belongs to a group that
this user is not in.
"""

from model_optimizer.core import Finding, Host
from model_optimizer.doctor import advice

LAYER = "containers"
AFTER: tuple[str, ...] = ()
SOURCE = ("docs.docker.com, Linux post-installation steps",)


def check(host: Host) -> Finding:
    if host.container_runtimes is None:
        return advice.unknown("the container engines")
    if not advice.has_docker(host):
        return advice.not_here("no Docker here")
    if host.container:
        return advice.not_here("a container has no daemon of its own")
    if host.containers.docker_answers is None:
        return advice.unknown("whether Docker answers")
    if host.containers.docker_answers:
        return Finding(status="ok", message="Docker answers", evidence="docker info")
    return Finding(
        status="warn",
        message="Docker is installed and does not answer this user",
        evidence="docker info: no answer",
        hint=advice.steps(
            host,
            "sudo systemctl enable --now docker",
            "sudo usermod -aG docker $USER, then log in again (that group has the rights of root)",
            wsl2="start Docker Desktop and turn on its integration with this distribution",
            windows="start Docker Desktop",
        ),
    )

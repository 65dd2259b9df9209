"""Docker or Podman know how to hand out the GPU.

The toolkit must be registered: as runtime `nvidia` in the daemon that is really used, or as a CDI file.
"""

from model_optimizer.core import Finding, Host
from model_optimizer.doctor import advice

LAYER = "containers"
AFTER = ("container_toolkit", "docker_access")
SOURCE = (
    "docs.nvidia.com/datacenter/cloud-native/container-toolkit, configuration",
    "NVIDIA/nvidia-docker#578",
)


def check(host: Host) -> Finding:
    if not host.containers.toolkit or not host.container_runtimes:
        return advice.not_here("no toolkit to register")
    cdi, runtimes = host.containers.cdi, host.containers.runtimes
    if cdi:
        return Finding(status="ok", message="the GPU is described by CDI", evidence=", ".join(cdi))
    if runtimes and "nvidia" in runtimes:
        return Finding(
            status="ok",
            message="Docker knows the runtime `nvidia`",
            evidence=f"runtimes: {', '.join(runtimes)}",
        )
    if host.containers.containerd:
        return Finding(
            status="ok", message="containerd knows NVIDIA's runtime", evidence="/etc/containerd/config.toml"
        )
    if runtimes is None and advice.has_docker(host):
        return advice.unknown("the runtimes that Docker knows")
    docker = advice.has_docker(host)
    return Finding(
        status="fail",
        message="the container toolkit is installed and not registered: containers get no GPU",
        evidence=f"runtimes: {', '.join(runtimes or ()) or 'none'}; no CDI file in /etc/cdi or /var/run/cdi",
        hint=(
            "sudo nvidia-ctk runtime configure --runtime=docker && sudo systemctl restart docker\n"
            "rootless: nvidia-ctk runtime configure --runtime=docker "
            "--config=$HOME/.config/docker/daemon.json"
            if docker
            else "sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml\n"
            "containerd: sudo nvidia-ctk runtime configure --runtime=containerd"
        ),
    )

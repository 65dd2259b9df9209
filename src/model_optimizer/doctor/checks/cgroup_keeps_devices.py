"""A reload of systemd will not take the GPU from running containers.

With the systemd cgroup driver and the classic runtime, systemd does not know the container's devices and
drops them at `systemctl daemon-reload`, which any package upgrade may call.
"""

from model_optimizer.core import Finding, Host
from model_optimizer.doctor import advice

LAYER = "containers"
AFTER = ("runtime_registered",)
SOURCE = ("NVIDIA/nvidia-docker#1730", "NVIDIA/nvidia-container-toolkit#1227")


def check(host: Host) -> Finding:
    driver = host.containers.cgroup_driver
    if not host.containers.toolkit or not advice.has_docker(host) or host.wsl or host.os == "Windows":
        return advice.not_here("no Docker with NVIDIA's toolkit on Linux itself")
    if driver is None:
        return advice.unknown("Docker's cgroup driver")
    evidence = f"cgroup driver {driver}; {'CDI file there' if host.containers.cdi else 'no CDI file'}"
    if driver != "systemd" or host.containers.cdi or host.containers.char_links:
        return Finding(status="ok", message="running containers keep the GPU", evidence=evidence)
    return Finding(
        status="warn",
        message="running containers lose the GPU when systemd reloads its units",
        evidence=evidence + "; no links in /dev/char",
        hint="sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml, and start with "
        "--device nvidia.com/gpu=all\n"
        "or: sudo nvidia-ctk system create-dev-char-symlinks --create-all   # after each boot\n"
        'or in /etc/docker/daemon.json: "exec-opts": ["native.cgroupdriver=cgroupfs"]',
    )

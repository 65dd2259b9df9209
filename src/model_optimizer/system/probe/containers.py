"""How containers get the GPU: NVIDIA's toolkit, Docker's runtimes and cgroup driver, CDI files."""

import json
import re
from typing import Any

from model_optimizer.core.host import Containers

from .world import World, attempt

ENGINES = ("docker", "podman", "nerdctl")
_CDI = ("/etc/cdi", "/var/run/cdi", "/run/cdi")
_DRIVER_FILE = re.compile(r"lib(?:cuda|nvidia-ml)\.so\.(\d{3}[\d.]*\d)")


def engines(world: World) -> tuple[str, ...]:
    """What starts containers here; containerd alone (a node of Kubernetes) counts when it is the only one."""
    found = tuple(name for name in ENGINES if world.which(name))
    return found or (("containerd",) if world.which("containerd") else ())


def _containerd(world: World) -> bool | None:
    """None without a configuration; it may be split over several files."""
    folder = "/etc/containerd"
    names = [
        f"{folder}/config.toml",
        *(f"{folder}/conf.d/{n}" for n in world.names(f"{folder}/conf.d") or ()),
    ]
    texts = [text for text in map(world.text, names) if text is not None]
    return any("nvidia-container-runtime" in text for text in texts) if texts else None


def read(world: World) -> Containers:
    docker = world.which("docker")
    info = _docker_info(world) if docker else None
    daemon = _daemon_file(world)
    return Containers(
        toolkit=_toolkit(world),
        runtimes=_runtimes(info, daemon),
        cgroup_driver=_cgroup_driver(info, daemon),
        cdi=_cdi(world),
        char_links=_char_links(world),
        docker_answers=None if docker is None else info is not None,
        docker_snap=None if docker is None else "/snap/" in docker,
        containerd=_containerd(world),
        rootless=None
        if info is None
        else any("rootless" in str(o) for o in info.get("SecurityOptions") or ()),
    )


def _docker_info(world: World) -> dict[str, Any] | None:
    """What the daemon says; None when it does not answer us."""
    text = world.ask(["docker", "info", "--format", "{{json .}}"], 2.5)
    found = attempt(lambda: json.loads(text or ""))
    return found if isinstance(found, dict) and found.get("ServerVersion") else None


def _daemon_file(world: World) -> dict[str, Any]:
    found = attempt(lambda: json.loads(world.text("/etc/docker/daemon.json") or "{}"))
    return found if isinstance(found, dict) else {}


def _toolkit(world: World) -> str | None:
    if world.system != "Linux":
        return None
    if not world.which("nvidia-ctk") and not world.which("nvidia-container-runtime"):
        return ""
    text = world.ask(["nvidia-ctk", "--version"], 2.0) or ""
    found = re.search(r"version (\d[\w.~-]*)", text)
    return found[1] if found else None


def _runtimes(info: dict[str, Any] | None, daemon: dict[str, Any]) -> tuple[str, ...] | None:
    known = (info or daemon).get("Runtimes" if info else "runtimes")
    if isinstance(known, dict):
        return tuple(sorted(str(name) for name in known))
    return () if daemon else None


def _cgroup_driver(info: dict[str, Any] | None, daemon: dict[str, Any]) -> str | None:
    if info:
        return str(info.get("CgroupDriver") or "") or None
    given = daemon.get("exec-opts")
    options = [str(option) for option in given] if isinstance(given, list) else []
    found = [o.rpartition("=")[2] for o in options if o.startswith("native.cgroupdriver=")]
    return found[0] if found else None


def _cdi(world: World) -> dict[str, str]:
    """Each CDI file of NVIDIA's devices, and the driver version that it was written for (empty: unknown)."""
    found: dict[str, str] = {}
    for folder in _CDI:
        for name in world.names(folder) or ():
            text = world.text(f"{folder}/{name}") or ""
            if "nvidia.com/gpu" in text:
                version = _DRIVER_FILE.search(text)
                found.setdefault(
                    f"/etc/cdi/{name}" if folder == "/etc/cdi" else f"/var/run/cdi/{name}",
                    version[1] if version else "",
                )
    return found


def _char_links(world: World) -> bool | None:
    """Links in /dev/char to the nodes, which systemd needs to keep a container's devices."""
    place = world.at("/dev/char")
    entries = attempt(lambda: list(place.iterdir())) if place.exists() else None
    if entries is None:
        return None
    return any("nvidia" in (attempt(lambda e=e: e.readlink().name) or "") for e in entries)

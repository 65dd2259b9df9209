"""The hub, the usual ports of model servers, servers that listen already, and RDMA devices."""

import re
from urllib.parse import urlsplit

from model_optimizer.core.host import Listener, Network

from .world import World, attempt

PORTS = (8000, 8001, 8002, 30000)
_LISTENS = "0A"
_EVERYWHERE = frozenset({"00000000", "0" * 32})
_SERVERS = (
    ("vllm", re.compile(r"\bvllm\b.*\bserve\b|vllm\.entrypoints")),
    ("sglang", re.compile(r"sglang\.launch_server|sglang serve")),
    ("tritonserver", re.compile(r"\btritonserver\b")),
    ("trtllm-serve", re.compile(r"trtllm-serve")),
    ("llama-server", re.compile(r"\bllama-server\b")),
)
_KEY = re.compile(r"--api-key(?:\s|=|$)|VLLM_API_KEY=.|LLAMA_API_KEY=.")


def read(world: World) -> Network:
    sockets = listening(world)
    return Network(
        busy_ports=None
        if sockets is None
        else tuple(p for p in PORTS if any(p == s[0] for s in sockets.values())),
        servers=None if sockets is None else _servers(world, sockets),
        rdma=world.names("/sys/class/infiniband") if world.system == "Linux" else None,
    )


def hub(world: World) -> bool | None:
    """Whether the hub's port opens. None when the user works offline or goes through a proxy."""
    if world.environ.get("HF_HUB_OFFLINE", "0") not in ("", "0") or any(
        world.environ.get(name) for name in ("https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY")
    ):
        return None
    place = attempt(lambda: urlsplit(world.environ.get("HF_ENDPOINT") or "https://huggingface.co"))
    if place is None or not place.hostname:
        return None
    port = attempt(lambda: place.port) or (80 if place.scheme == "http" else 443)
    return world.reach(place.hostname, port, 1.5)


def listening(world: World) -> dict[str, tuple[int, bool]] | None:
    """By inode of the socket: its port, and whether every machine may connect."""
    found: dict[str, tuple[int, bool]] = {}
    texts = [world.text(f"/proc/net/{name}") for name in ("tcp", "tcp6")]
    for line in "\n".join(text or "" for text in texts).splitlines():
        row = line.split()
        if len(row) > 9 and row[3] == _LISTENS and ":" in row[1]:
            address, _, port = row[1].partition(":")
            number = attempt(lambda port=port: int(port, 16))
            if number is not None:
                found[row[9]] = (number, address in _EVERYWHERE)
    return None if texts == [None, None] else found


def _servers(world: World, sockets: dict[str, tuple[int, bool]]) -> tuple[Listener, ...]:
    """Model servers among the processes that we may look at."""
    found: set[Listener] = set()
    for pid in world.names("/proc") or ():
        line = (world.text(f"/proc/{pid}/cmdline") or "").replace("\0", " ") if pid.isdigit() else ""
        program = next((name for name, pattern in _SERVERS if pattern.search(line)), None)
        if program is None:
            continue
        environment = world.text(f"/proc/{pid}/environ")
        key = bool(_KEY.search(line) or _KEY.search((environment or "").replace("\0", "\n")))
        for inode in _sockets(world, pid):
            if inode in sockets:
                port, everywhere = sockets[inode]
                known = key or (False if environment is not None else None)
                found.add(Listener(program=program, port=port, everywhere=everywhere, key=known))
    return tuple(sorted(found, key=lambda one: (one.port, one.program)))


def _sockets(world: World, pid: str) -> list[str]:
    links = (
        attempt(lambda name=name: str(world.at(f"/proc/{pid}/fd/{name}").readlink()))
        for name in world.names(f"/proc/{pid}/fd") or ()
    )
    return [m[1] for m in (re.fullmatch(r"socket:\[(\d+)\]", link or "") for link in links) if m]

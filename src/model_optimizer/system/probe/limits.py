"""What the system lets a process have: shared memory, open files, locked memory, swap, disks."""

import re

from model_optimizer.core.host import Limits

from .machine import meminfo
from .world import World, attempt


def read(world: World) -> Limits:
    memory = meminfo(world)
    shm = world.disk(world.at("/dev/shm")) if world.exists("/dev/shm") else None
    docker = next(
        (p for p in ("/var/lib/docker", "/var/lib/containers", "/var/lib") if world.exists(p)), None
    )
    docker_disk = world.disk(world.at(docker)) if docker else None
    temporary = world.disk(world.at("/tmp")) if world.exists("/tmp") else None
    return Limits(
        shared_memory_bytes=shm[0] if shm else None,
        open_files=_limit(world, "Max open files", hard=True),
        memory_lock_bytes=_limit(world, "Max locked memory"),
        swap_used_bytes=attempt(lambda: memory["SwapTotal"] - memory["SwapFree"]),
        container_disk_free_bytes=docker_disk[1] if docker_disk else None,
        temporary_free_bytes=temporary[1] if temporary else None,
    )


def _limit(world: World, name: str, *, hard: bool = False) -> int | None:
    """A limit by its name in /proc/self/limits, the soft one or the hard one; -1 for unlimited."""
    found = re.search(rf"^{name}\s+(\S+)\s+(\S+)", world.text("/proc/self/limits") or "", re.MULTILINE)
    if not found:
        return None
    value = found[2] if hard else found[1]
    return -1 if value == "unlimited" else attempt(lambda: int(value))

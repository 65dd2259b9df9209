"""How much memory the control groups around this process leave it: cgroup 1 and 2, every level up."""

from collections.abc import Iterator
from pathlib import PurePosixPath

from .world import World, attempt

ROOT = "/sys/fs/cgroup"
NAMES = {
    ROOT: ("memory.max", "memory.current", "inactive_file"),
    f"{ROOT}/memory": ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
}
"""Where a version of cgroup lies: files of limit and use, and the word for cached files that nobody needs."""


def memory_left(world: World) -> int | None:
    """Bytes that may still be taken in all of them; None where nothing limits or can be read."""
    left = [found for place, root in _places(world) if (found := _left(world, place, root)) is not None]
    return min(left, default=None)


def _places(world: World) -> Iterator[tuple[str, str]]:
    """(folder of a group, root of its version), inwards out. A container sees its own group at the root."""
    inside = {ROOT: "/", f"{ROOT}/memory": "/"}
    for line in (world.text("/proc/self/cgroup") or "").splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if number == "0" and not controllers:
            inside[ROOT] = path
        elif "memory" in controllers.split(","):
            inside[f"{ROOT}/memory"] = path
    for root, path in inside.items():
        own = PurePosixPath(path or "/")
        if ".." not in own.parts:
            yield from ((root + str(group).rstrip("/"), root) for group in (own, *own.parents))


def _left(world: World, place: str, root: str) -> int | None:
    limit_file, used_file, cached_word = NAMES[root]
    limit = attempt(lambda: int(world.text(f"{place}/{limit_file}") or ""))
    used = attempt(lambda: int(world.text(f"{place}/{used_file}") or ""))
    if limit is None or used is None:
        return None
    rows = (line.split() for line in (world.text(f"{place}/memory.stat") or "").splitlines())
    cached = next((int(row[1]) for row in rows if len(row) == 2 and row[0] == cached_word), 0)
    return max(0, limit - max(0, used - cached))

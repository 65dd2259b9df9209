"""There is disk space for images.

An image with an inference engine takes 10 to 30 GiB unpacked, and Docker needs room for both forms while
it pulls.
"""

from model_optimizer.core import Finding, Host, units
from model_optimizer.doctor import advice

LAYER = "containers"
AFTER: tuple[str, ...] = ()
SOURCE = ("assumed: sizes of engine images as users report them",)
WANTED_BYTES = 30 << 30


def check(host: Host) -> Finding:
    if not host.container_runtimes or host.container:
        return advice.not_here("no container engine of this machine's own")
    free = host.limits.container_disk_free_bytes
    if free is None:
        return advice.unknown("the room for images")
    shown = units.show_bytes(free)
    if free < WANTED_BYTES:
        return Finding(
            status="warn",
            message=f"{shown} are free for images, one of an engine can take 30 GiB",
            evidence=f"the disk of Docker's folder: {shown} free",
            hint="docker system prune   # removes what no container uses\nor move Docker's "
            "data-root to a larger disk",
        )
    return Finding(status="ok", message=f"{shown} free for images", evidence="the disk of Docker's folder")

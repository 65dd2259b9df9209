"""The folder for temporary files has room for compilers and caches.

PyTorch's compiler, Triton and pip unpack into it; a small tmpfs fills up and the error names something
else.
"""

from model_optimizer.core import Finding, Host, units
from model_optimizer.doctor import advice

LAYER = "machine"
AFTER = ("disk_enough",)
SOURCE = ("pip documentation, TMPDIR; Triton, TRITON_CACHE_DIR",)
WANTED_BYTES = 1 << 30


def check(host: Host) -> Finding:
    free = host.limits.temporary_free_bytes
    if free is None:
        return advice.unknown("the room for temporary files")
    shown = units.show_bytes(free)
    if free < WANTED_BYTES:
        return Finding(
            status="warn",
            message=f"only {shown} are free for temporary files",
            evidence=f"/tmp: {shown} free",
            hint="set TMPDIR to a folder on a larger disk, or make room in /tmp",
        )
    return Finding(status="ok", message=f"{shown} free for temporary files", evidence="/tmp")

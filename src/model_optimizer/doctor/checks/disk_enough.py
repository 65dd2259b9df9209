"""There is disk space for a stage environment and a run.

The `onnx` environment takes about 2 GB, a run up to three times the size of the model. On a full disk
nothing can be downloaded, and programs fail in ways that do not speak of the disk.
"""

from model_optimizer.core import Finding, Host, units

LAYER = "machine"
AFTER: tuple[str, ...] = ()
SOURCE = ("measured when the stage environments were made (system/locks, about.toml)",)
WANTED_BYTES = 4 << 30
FULL_BYTES = 256 << 20


def check(host: Host) -> Finding:
    if host.disk_free_bytes is None:
        return Finding(status="unknown", message="the free disk space could not be read")
    free = units.show_bytes(host.disk_free_bytes)
    hint = (
        "free some space, or set MOPT_HOME to a folder on a larger disk\n"
        "du -xh ~ | sort -h | tail   # shows what is large"
    )
    if host.disk_free_bytes < FULL_BYTES:
        return Finding(
            status="fail", message="the disk of the home folder is full", evidence=f"{free} free", hint=hint
        )
    if host.disk_free_bytes < WANTED_BYTES:
        return Finding(
            status="warn",
            message=f"only {free} are free on the disk of the home folder",
            evidence=f"{free} free",
            hint=hint,
        )
    return Finding(status="ok", message=f"{free} of disk free", evidence=f"{free} free")

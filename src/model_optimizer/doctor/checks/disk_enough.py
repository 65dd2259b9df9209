"""There is disk space for a stage environment and a run.

The `onnx` environment takes about 2 GB, a run up to three times the size of the model.
"""

from model_optimizer.core import Finding, Host, units

AFTER: tuple[str, ...] = ()
WANTED_BYTES = 4 << 30


def check(host: Host) -> Finding:
    if host.disk_free_bytes is None:
        return Finding(status="unknown", message="the free disk space could not be read")
    free = units.show_bytes(host.disk_free_bytes)
    if host.disk_free_bytes < WANTED_BYTES:
        return Finding(
            status="warn",
            message=f"only {free} are free on the disk of the home folder",
            evidence=f"{free} free",
            hint="free some space, or set MOPT_HOME to a folder on a larger disk",
        )
    return Finding(status="ok", message=f"{free} of disk free", evidence=f"{free} free")

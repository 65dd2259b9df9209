"""There is RAM to spare for the tools that load and convert models.

An environment with PyTorch takes about 1 GiB before any weights are loaded.
"""

from model_optimizer.core import Finding, Host, units

LAYER = "machine"
AFTER: tuple[str, ...] = ()
SOURCE = ("measured when the stage environments were made (system/locks, about.toml)",)
TOOL_BYTES = 2 << 30


def check(host: Host) -> Finding:
    if host.memory_available_bytes is None:
        return Finding(status="unknown", message="the free memory could not be read")
    free = units.show_bytes(host.memory_available_bytes)
    evidence = f"{free} of {units.show_bytes(host.memory_bytes)} available"
    if host.memory_available_bytes < TOOL_BYTES:
        return Finding(
            status="warn",
            message=f"only {free} of memory are available",
            evidence=evidence,
            hint="close other programs, or work on a smaller model; conversion holds the weights twice",
        )
    return Finding(status="ok", message=f"{free} of memory available", evidence=evidence)

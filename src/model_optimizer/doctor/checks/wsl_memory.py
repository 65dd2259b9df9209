"""WSL2 gives Linux enough of the machine's memory.

By default it gives half of it; loading a model then fails although Windows has memory to spare.
"""

from model_optimizer.core import Finding, Host, units
from model_optimizer.doctor import advice

LAYER = "machine"
AFTER: tuple[str, ...] = ()
SOURCE = ("learn.microsoft.com, advanced settings in WSL (.wslconfig, memory)",)
WANTED_BYTES = 8 << 30


def check(host: Host) -> Finding:
    if not host.wsl:
        return advice.not_here("not WSL2") if host.wsl is False else advice.unknown("whether this is WSL2")
    if host.memory_bytes is None:
        return advice.unknown("the memory")
    shown = f"WSL2 has {units.show_bytes(host.memory_bytes)} of memory"
    if host.memory_bytes < WANTED_BYTES:
        return Finding(
            status="warn",
            message=f"{shown}, by default half of the machine's",
            evidence=shown,
            hint="in %UserProfile%\\.wslconfig under [wsl2]: memory=24GB, then in PowerShell: wsl --shutdown",
        )
    return Finding(status="ok", message=shown, evidence=shown)

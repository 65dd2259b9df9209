"""Memory is not paged out to a great part.

Weights and pinned buffers that lie in swap make a server answer in seconds instead of milliseconds.
"""

from model_optimizer.core import Finding, Host, units
from model_optimizer.doctor import advice

LAYER = "machine"
AFTER = ("memory_enough",)
SOURCE = ("kernel.org, vm.swappiness",)


def check(host: Host) -> Finding:
    used, total = host.limits.swap_used_bytes, host.memory_bytes
    if used is None or total is None:
        return advice.unknown("the use of swap")
    evidence = f"{units.show_bytes(used)} of swap in use, {units.show_bytes(total)} of memory"
    if used > total // 4:
        return Finding(
            status="warn",
            message=f"{units.show_bytes(used)} are swapped out: this machine is short of memory",
            evidence=evidence,
            hint="end what holds the memory before a server starts: ps aux --sort=-rss | head",
        )
    return Finding(status="ok", message=f"{units.show_bytes(used)} of swap in use", evidence=evidence)

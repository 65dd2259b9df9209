"""The kernel of WSL2 is new enough for pinned memory.

Before 4.19.121 it cannot lock host memory for the GPU, and copies are slower. vLLM leaves pinned memory
off in WSL2 unless VLLM_WSL2_ENABLE_PIN_MEMORY=1 is set.
"""

import re

from model_optimizer.core import Finding, Host
from model_optimizer.doctor import advice

LAYER = "machine"
AFTER: tuple[str, ...] = ()
SOURCE = ("vLLM 0.33.0 platforms/cuda.py", "facts/compatibility/drivers.toml, wsl2")
OLDEST = (4, 19, 121)


def check(host: Host) -> Finding:
    if not host.wsl:
        return advice.not_here("not WSL2") if host.wsl is False else advice.unknown("whether this is WSL2")
    found = re.match(r"(\d+)\.(\d+)\.(\d+)", host.kernel or "")
    if not found:
        return advice.unknown("the version of the kernel")
    if tuple(int(part) for part in found.groups()) < OLDEST:
        return Finding(
            status="warn",
            message=f"the WSL2 kernel {host.kernel} is too old for pinned memory",
            evidence=f"kernel {host.kernel}, {advice.dotted(OLDEST)} is needed",
            hint="in PowerShell: wsl --update; wsl --shutdown",
        )
    return Finding(status="ok", message=f"WSL2 kernel {host.kernel}", evidence="/proc/version")

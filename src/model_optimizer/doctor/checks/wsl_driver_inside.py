"""No Linux driver is installed inside WSL2.

Its libcuda hides the one of Windows, and there is no module that it could speak to.
"""

from model_optimizer.core import Finding, Host
from model_optimizer.doctor import advice

LAYER = "driver"
AFTER = ("wsl_libcuda",)
SOURCE = ("docs.nvidia.com/cuda/wsl-user-guide", "facts/compatibility/drivers.toml, wsl2")
NAMES = ("nvidia-driver", "nvidia-dkms", "libnvidia-compute", "cuda-drivers", "nvidia-open", "libcuda1")


def check(host: Host) -> Finding:
    if not host.wsl:
        return advice.not_here("not WSL2") if host.wsl is False else advice.unknown("whether this is WSL2")
    inside = [name for name in host.modules.packages or () if name.startswith(NAMES)]
    path = (host.linker.libraries or {}).get("libcuda.so.1", "")
    if inside or (path and not path.startswith("/usr/lib/wsl")):
        return Finding(
            status="fail",
            message="a Linux driver is installed inside WSL2 and hides the one of Windows",
            evidence=", ".join(filter(None, (*inside, path))),
            hint="sudo apt purge '*nvidia-driver*' '*libnvidia-compute*' 'cuda-drivers*' && "
            "sudo apt autoremove\n"
            "in PowerShell: wsl --shutdown\nCUDA toolkits inside WSL2 are fine: package "
            "cuda-toolkit, not cuda",
        )
    return Finding(
        status="ok", message="no Linux driver inside WSL2", evidence=path or "no package of a driver"
    )

"""WSL2 has the libcuda that Windows's driver provides.

Windows puts its driver's libraries into /usr/lib/wsl/lib. They are missing when Windows has no NVIDIA
driver, or WSL is old.
"""

from model_optimizer.core import Finding, Host
from model_optimizer.doctor import advice

LAYER = "driver"
AFTER: tuple[str, ...] = ()
SOURCE = ("docs.nvidia.com/cuda/wsl-user-guide", "facts/compatibility/drivers.toml, wsl2")


def check(host: Host) -> Finding:
    if not host.wsl:
        return advice.not_here("not WSL2") if host.wsl is False else advice.unknown("whether this is WSL2")
    if host.linker.libraries is None:
        return advice.unknown("the libraries of the linker")
    path = host.linker.libraries.get("libcuda.so.1")
    if path and path.startswith("/usr/lib/wsl"):
        return Finding(status="ok", message="libcuda comes from Windows", evidence=path)
    if path:
        return Finding(status="ok", message="libcuda was found", evidence=path)
    return Finding(
        status="fail",
        message="WSL2 has no libcuda: Windows provides none",
        evidence="/usr/lib/wsl/lib/libcuda.so.1 is not there",
        hint=advice.install_driver(host),
    )

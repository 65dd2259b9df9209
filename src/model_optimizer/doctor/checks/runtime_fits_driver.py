"""The driver runs the CUDA runtimes that are installed here.

Within one major version of CUDA every driver from that version's minimum on will do: 525 for 12.x, 580
for 13.x. What `nvidia-smi` shows as CUDA version is the newest that the driver has all features of, not a
limit within the major version.
"""

import re

from model_optimizer.core import Finding, Host
from model_optimizer.doctor import advice
from model_optimizer.facts import drivers

LAYER = "cuda"
AFTER = ("driver_present", "compat_shadows_driver")
SOURCE = ("docs.nvidia.com/deploy/cuda-compatibility, minor version compatibility",)


def check(host: Host) -> Finding:
    if host.driver_version is None or not host.gpus:
        return advice.not_here("no driver to compare with")
    here = _runtimes(host)
    if not here:
        return advice.not_here("no CUDA runtime is installed outside containers")
    evidence = (
        ", ".join(f"CUDA {major} ({what})" for major, what in here.items())
        + f"; driver {host.driver_version}"
    )
    runs = _majors(host)
    bad = [major for major in here if major not in runs]
    if bad:
        need = drivers.minimum(str(max(bad)))
        return Finding(
            status="fail",
            message=f"CUDA {max(bad)} needs driver {need.driver_linux} or newer; "
            f"{host.driver_version} does not run it",
            evidence=evidence,
            hint=f"{advice.install_driver(host)}\nor install a build for CUDA {max(runs, default=12)} "
            f"(torch and vLLM have wheels +cu12x)",
        )
    return Finding(
        status="ok", message=f"the driver runs CUDA {', '.join(map(str, sorted(here)))}", evidence=evidence
    )


def _majors(host: Host) -> tuple[int, ...]:
    """Major versions that the driver runs; Windows's numbers stand for other drivers, so its CUDA decides."""
    if (host.wsl or host.os == "Windows") and host.driver_cuda:
        return tuple(m.cuda_major for m in drivers.minimums() if m.cuda_major <= host.driver_cuda[0])
    return drivers.describe(host.driver_version or "0").cuda_majors


def _runtimes(host: Host) -> dict[int, str]:
    """Major versions of CUDA by what brings them."""
    found: dict[int, str] = {}
    packages = host.packages or {}
    torch = re.search(r"\+cu(\d\d)", packages.get("torch", ""))
    if torch:
        found[int(torch[1])] = f"torch {packages['torch']}"
    for name in ("nvidia-cuda-runtime", "nvidia-cuda-runtime-cu12", "nvidia-cuda-runtime-cu13"):
        if name in packages:
            found.setdefault(int(packages[name].partition(".")[0]), f"{name} {packages[name]}")
    for name in ("tensorrt-cu12", "tensorrt-cu13"):
        if name in packages:
            found.setdefault(int(name[-2:]), f"{name} {packages[name]}")
    return found

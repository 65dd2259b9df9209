"""No compatibility library stands before the driver's own libcuda.

The package cuda-compat lets a newer CUDA run on an older driver of a data-centre GPU. On GeForce it is
refused (error 804), and one that is older than the driver gives error 803.
"""

import re

from model_optimizer.core import Finding, Host
from model_optimizer.doctor import advice
from model_optimizer.facts.versions import key

LAYER = "cuda"
AFTER = ("gpu_visible",)
SOURCE = ("docs.nvidia.com/deploy/cuda-compatibility, forward compatibility", "vllm-project/vllm#4940")


def check(host: Host) -> Finding:
    if host.linker.libraries is None:
        return advice.unknown("the libraries of the linker")
    path = host.linker.libraries.get("libcuda.so.1")
    if path is None or not host.gpus:
        return advice.not_here("no libcuda to ask about")
    if "compat" not in path:
        return Finding(status="ok", message="libcuda is the driver's own", evidence=path)
    version = re.search(r"\.so\.(\d{3}[\d.]*\d)$", path)
    driver = host.driver_version or host.modules.nvidia_version
    older = bool(version and driver and key(version[1]) <= key(driver))
    consumer = any(advice.is_consumer(gpu) for gpu in host.gpus)
    if not older and not consumer:
        return Finding(
            status="ok", message="forward compatibility is in use, on GPUs that have it", evidence=path
        )
    why = (
        f"it is not newer than the driver {driver} (error 803)"
        if older
        else "GeForce and RTX have no forward compatibility (error 804)"
    )
    return Finding(
        status="fail",
        message=f"a compatibility libcuda hides the driver's own, and {why}",
        evidence=path,
        hint="take its folder out of LD_LIBRARY_PATH and /etc/ld.so.conf.d, then: sudo ldconfig\n"
        + advice.steps(
            host,
            "remove the package cuda-compat-*",
            deb="or remove it: sudo apt remove 'cuda-compat-*'",
            rhel="or remove it: sudo dnf remove 'cuda-compat-*'",
            container="in the image: rm -rf /usr/local/cuda/compat /usr/local/cuda-*/compat, "
            "or unset VLLM_ENABLE_CUDA_COMPATIBILITY",
        ),
    )

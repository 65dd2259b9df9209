"""One version of cuDNN is found, the one that the packages were built with.

A cuDNN of the system in front of the one that PyTorch brings, of another version, breaks it at the first
convolution or attention (sub library version mismatch).
"""

import re

from model_optimizer.core import Finding, Host
from model_optimizer.doctor import advice

LAYER = "cuda"
AFTER = ("gpu_visible",)
SOURCE = ("docs.nvidia.com/deeplearning/cudnn, version compatibility of the sub libraries",)


def check(host: Host) -> Finding:
    packages = host.packages or {}
    wheel = next((packages[n] for n in ("nvidia-cudnn-cu13", "nvidia-cudnn-cu12") if n in packages), None)
    path = next(
        (p for name, p in (host.linker.libraries or {}).items() if name.startswith("libcudnn.so.")), None
    )
    if wheel is None or path is None:
        return advice.not_here("not two of them")
    version = re.search(r"\.so\.(\d+\.\d+\.\d+)", path)
    evidence = f"{path}; package {wheel}"
    shadows = "LD_LIBRARY_PATH" in (host.linker.variables or {})
    if version and shadows and not wheel.startswith(version[1]):
        return Finding(
            status="warn",
            message=f"cuDNN {version[1]} of the system stands before {wheel} of the Python packages",
            evidence=evidence,
            hint="take its folder out of LD_LIBRARY_PATH: packages find their own",
        )
    return Finding(status="ok", message=f"cuDNN {wheel} of the packages is used", evidence=evidence)

"""The toolkit here is not newer than the driver's compiler for PTX.

Compatibility within a major version does not cover PTX: code that a newer toolkit leaves for the driver
to compile is refused (the provided PTX was compiled with an unsupported toolchain).
"""

from model_optimizer.core import Finding, Host
from model_optimizer.doctor import advice

LAYER = "cuda"
AFTER = ("runtime_fits_driver",)
SOURCE = (
    "docs.nvidia.com/deploy/cuda-compatibility, minor version compatibility",
    "vllm-project/vllm#28305",
    "vllm-project/vllm#31700",
)


def check(host: Host) -> Finding:
    if host.driver_cuda is None or not host.gpus:
        return advice.not_here("no driver to compare with")
    if not host.linker.toolkits:
        return advice.not_here("no CUDA toolkit is installed")
    versions = [tuple(int(part) for part in text.split(".")[:2]) for text in host.linker.toolkits]
    newer = [v for v in versions if v > tuple(host.driver_cuda)]
    evidence = (
        f"toolkits {', '.join(host.linker.toolkits)}; the driver's CUDA is {advice.dotted(host.driver_cuda)}"
    )
    if newer:
        return Finding(
            status="warn",
            message=f"toolkit {advice.dotted(max(newer))} is newer than the driver's CUDA "
            f"{advice.dotted(host.driver_cuda)}: "
            "code that it leaves as PTX will not run",
            evidence=evidence,
            hint=f"compile for the GPU itself (TORCH_CUDA_ARCH_LIST={_arch(host)}), use "
            f"toolkit {advice.dotted(host.driver_cuda)}, "
            "or upgrade the driver",
        )
    return Finding(status="ok", message="toolkits are not newer than the driver", evidence=evidence)


def _arch(host: Host) -> str:
    known = [gpu.compute_capability for gpu in host.gpus or () if gpu.compute_capability]
    return advice.dotted(known[0]) if known else "8.9"

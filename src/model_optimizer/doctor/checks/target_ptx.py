"""What shall run is not built with a newer CUDA than the driver's own compiler knows.

Within one major version compiled code runs on an older driver. Code that arrives as PTX does not: the
driver must compile it, and refuses what a newer toolkit wrote (the provided PTX was compiled with an
unsupported toolchain).
"""

from model_optimizer.core import Finding, Host
from model_optimizer.core.target import Need, Target
from model_optimizer.doctor import advice
from model_optimizer.facts.versions import minor

LAYER = "target"
TARGETED = True
AFTER = ("target_driver",)
SOURCE = (
    "docs.nvidia.com/deploy/cuda-compatibility, minor version compatibility",
    "vLLM 0.33.0 docs/usage/troubleshooting.md",
    "vllm-project/vllm#28305",
)


def check(host: Host, target: Target | None = None) -> Finding:
    if target is None:
        return Finding(status="skipped", message="nothing was named with --for")
    if not host.gpus:
        return advice.not_here("no NVIDIA GPU here")
    if host.driver_cuda is None:
        return advice.unknown("the driver's CUDA")
    known = [need for need in target.needs if need.cuda and "." in need.cuda]
    if not known:
        return Finding(
            status="unknown", message="the CUDA of what shall run is not known to its minor version"
        )
    driver = tuple(host.driver_cuda)
    newer = [
        need for need in known if minor(need.cuda or "")[0] == driver[0] and minor(need.cuda or "") > driver
    ]
    if newer:
        return _newer(host, newer[0])
    return Finding(
        status="ok",
        message=f"the driver's CUDA {advice.dotted(driver)} is not older",
        evidence=", ".join(f"{need.asked}: CUDA {need.cuda}" for need in known),
    )


def _newer(host: Host, need: Need) -> Finding:
    return Finding(
        status="warn",
        message=f"{need.asked} is built with CUDA {need.cuda}, the driver knows "
        f"{advice.dotted(host.driver_cuda)}: it "
        "runs, except for kernels that it brings as PTX",
        evidence=f"driver {host.driver_version}, its CUDA {advice.dotted(host.driver_cuda)}; "
        f"{need.asked}: CUDA {need.cuda}",
        hint="when it ends with `the provided PTX was compiled with an unsupported "
        "toolchain`, upgrade the driver:\n" + advice.install_driver(host),
    )

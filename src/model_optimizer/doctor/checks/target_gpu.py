"""What shall run has code for the GPU here.

Compiled code runs on GPUs of the same major compute capability and an equal or higher minor one; PTX also
on newer GPUs.
"""

from model_optimizer.core import Finding, Gpu, Host
from model_optimizer.core.target import Need, Target
from model_optimizer.doctor import advice, fitting

LAYER = "target"
TARGETED = True
AFTER = ("gpu_visible", "target_known")
SOURCE = (
    "CUDA documentation, binary and PTX compatibility",
    "facts/compatibility: compute capabilities of each release",
)


def check(host: Host, target: Target | None = None) -> Finding:
    if target is None:
        return Finding(status="skipped", message="nothing was named with --for")
    wants = [need for need in target.needs if need.product != "torch"]
    if host.gpus == () and wants:
        return Finding(
            status="fail",
            message=f"{wants[0].asked} needs an NVIDIA GPU, and this machine has none",
            evidence=f"NVML: {host.nvml or 'not there'}",
            hint="check a machine that has one: there mopt doctor --save host.json,\n"
            "then mopt doctor --host host.json --for ...\n"
            "on this machine the CPU engines run: mopt optimize MODEL",
        )
    gpus = advice.gpus(host)
    if isinstance(gpus, Finding):
        return gpus
    known = [gpu for gpu in gpus if gpu.compute_capability]
    listed = [n for n in target.needs if n.compute_capabilities or n.minimum_capability]
    if not known or not listed:
        return Finding(status="unknown", message="which GPUs it has code for is not known")
    for need in listed:
        for gpu in known:
            if why := _why_not(need, gpu):
                return Finding(
                    status="fail",
                    message=f"{need.asked} has no code for {gpu.name}: {why}",
                    evidence=_evidence(need, gpu),
                    hint=fitting.other_release(gpu.compute_capability or (0, 0))
                    if need.product == "vllm"
                    else "choose a release that names this GPU: mopt facts shows them",
                )
    return Finding(
        status="ok", message=f"has code for {known[0].name}", evidence=_evidence(listed[0], known[0])
    )


def _why_not(need: Need, gpu: Gpu) -> str | None:
    capability = gpu.compute_capability or (0, 0)
    here = advice.dotted(capability)
    if need.minimum_capability and capability < need.minimum_capability:
        return f"it begins at {advice.dotted(need.minimum_capability)}, this GPU is {here}"
    if need.compute_capabilities:
        if not fitting.has_code(capability, need.compute_capabilities, ptx=need.ptx):
            return f"this GPU is {here}, which is not on its list"
        return None
    if need.maximum_capability and capability[0] > need.maximum_capability[0]:
        return f"it ends at {advice.dotted(need.maximum_capability)}, this GPU is {here}"
    return None


def _evidence(need: Need, gpu: Gpu) -> str:
    if need.compute_capabilities:
        wants = (
            "compiled for "
            + ", ".join(map(advice.dotted, need.compute_capabilities))
            + (" and PTX" if need.ptx else "")
        )
    else:
        wants = f"from {advice.dotted(need.minimum_capability)} to {advice.dotted(need.maximum_capability)}"
    return f"{need.asked}: {wants}; {gpu.name} is {advice.dotted(gpu.compute_capability)}"

"""A GPU in MIG mode has instances to run on.

With MIG on and no instance made, CUDA finds no device. With instances, an engine sees one slice of the
memory.
"""

from model_optimizer.core import Finding, Host
from model_optimizer.doctor import advice

LAYER = "gpu"
AFTER = ("gpu_visible",)
SOURCE = ("docs.nvidia.com/datacenter/tesla/mig-user-guide",)


def check(host: Host) -> Finding:
    gpus = advice.gpus(host)
    if isinstance(gpus, Finding):
        return gpus
    split = [gpu for gpu in gpus if gpu.mig]
    if not split:
        return (
            Finding(status="ok", message="GPUs are whole (MIG is off)", evidence="NVML: MIG mode")
            if any(g.mig is False for g in gpus)
            else advice.not_here("this GPU has no MIG")
        )
    empty = [gpu for gpu in split if gpu.mig_instances == 0]
    if empty:
        return Finding(
            status="fail",
            message=f"{advice.named(host, empty)}: MIG is on but no instance was made, so "
            "CUDA finds no device",
            evidence="NVML: MIG mode on, 0 instances",
            hint="make one: sudo nvidia-smi mig -cgi 0 -C   # the whole GPU\n"
            f"or turn MIG off: sudo nvidia-smi -i {advice.places(host, empty)} -mig 0",
        )
    return Finding(
        status="warn",
        message=f"{advice.named(host, split)} is split by MIG: an engine gets one instance and its memory",
        evidence=f"{', '.join(str(g.mig_instances) for g in split)} instances",
        hint="name the instance in CUDA_VISIBLE_DEVICES (nvidia-smi -L lists them), and give "
        "its memory to the planner: --vram",
    )

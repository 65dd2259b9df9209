"""No environment variable hides the GPUs from CUDA.

CUDA_VISIBLE_DEVICES empty or -1 hides all of them, and a number or UUID that is not there hides it and
all after it.
"""

from model_optimizer.core import Finding, Host
from model_optimizer.doctor import advice

LAYER = "cuda"
AFTER = ("gpu_visible",)
SOURCE = ("CUDA programming guide, CUDA_VISIBLE_DEVICES",)


def check(host: Host) -> Finding:
    if host.linker.variables is None:
        return advice.unknown("the environment variables")
    value = host.linker.variables.get("CUDA_VISIBLE_DEVICES")
    if not host.gpus:
        return advice.not_here("no NVIDIA GPU here")
    if value is None:
        return Finding(status="ok", message="CUDA sees every GPU", evidence="CUDA_VISIBLE_DEVICES is not set")
    shown = f"CUDA_VISIBLE_DEVICES={value}"
    words = [word.strip() for word in value.split(",")]
    hidden = words[0] in ("", "-1", "NoDevFiles", "none", "void")
    missing = [word for word in words if word.isdigit() and int(word) >= len(host.gpus)]
    if hidden or missing:
        return Finding(
            status="fail",
            message="an environment variable hides every GPU"
            if hidden
            else f"there is no GPU {missing[0]}: CUDA stops looking there",
            evidence=shown,
            hint="unset CUDA_VISIBLE_DEVICES   # and look where it is set: the shell's "
            "profile, a unit file, the job system",
        )
    return Finding(status="ok", message=f"CUDA sees {len(words)} of {len(host.gpus)} GPUs", evidence=shown)

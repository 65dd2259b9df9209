"""No screen takes memory of the GPU.

A desktop holds several hundred MiB, more with a browser, and its share changes while a server runs.
"""

from model_optimizer.core import Finding, Host, units
from model_optimizer.doctor import advice

LAYER = "gpu"
AFTER = ("gpu_visible",)
SOURCE = ("NVML documentation, display active", "vLLM docs, gpu_memory_utilization counts the whole GPU")


def check(host: Host) -> Finding:
    gpus = advice.gpus(host)
    if isinstance(gpus, Finding):
        return gpus
    if all(gpu.display is None for gpu in gpus):
        return advice.unknown("whether a screen hangs on the GPU")
    shown = [gpu for gpu in gpus if gpu.display]
    if not shown:
        return Finding(status="ok", message="no screen on the GPU", evidence="NVML: display active")
    gpu = shown[0]
    taken = (
        None
        if gpu.memory_bytes is None or gpu.memory_free_bytes is None
        else gpu.memory_bytes - gpu.memory_free_bytes
    )
    return Finding(
        status="warn",
        message=f"{advice.named(host, shown)} drives a screen: {units.show_bytes(taken)} of "
        "its memory are taken",
        evidence="NVML: display active",
        hint=advice.steps(
            host,
            "on a hybrid machine let the other GPU draw: sudo prime-select on-demand, then log in again",
            "else leave room: --gpu-memory-utilization 0.85",
            "or work without a desktop: sudo systemctl isolate multi-user.target",
            wsl2=("leave room for Windows: --gpu-memory-utilization 0.85",),
            windows=("close programs that draw with it (browser, games), or let the other GPU draw",),
        ),
    )

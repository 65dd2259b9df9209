"""Nothing but idleness holds the GPU's clocks down.

Heat and the power supply cut the clocks of a GPU; what is measured then is the cooling, not the model.
"""

from model_optimizer.core import Finding, Host
from model_optimizer.doctor import advice

LAYER = "gpu"
AFTER = ("gpu_visible",)
SOURCE = ("NVML documentation, clocks event reasons",)
WORDS = {
    "hardware_thermal": "heat (the hardware cuts the clocks)",
    "thermal": "heat (the driver cuts the clocks)",
    "hardware_slowdown": "heat or power (the hardware halves the clocks)",
    "power_brake": "the machine's power supply (external brake)",
}


def check(host: Host) -> Finding:
    gpus = advice.gpus(host)
    if isinstance(gpus, Finding):
        return gpus
    known = [gpu for gpu in gpus if gpu.throttle is not None]
    if not known:
        return advice.unknown("what holds the clocks")
    held = [gpu for gpu in known if set(gpu.throttle or ()) & set(WORDS)]
    if held:
        why = next(WORDS[name] for name in held[0].throttle or () if name in WORDS)
        return Finding(
            status="warn",
            message=f"{advice.named(host, held)} is slowed down by {why}",
            evidence=f"{', '.join(held[0].throttle or ())}; {held[0].temperature_c or '?'} C",
            hint="clean or raise the cooling, check the power cables; for a time: sudo "
            "nvidia-smi -pl WATTS below the default",
        )
    return Finding(
        status="ok",
        message="nothing holds the clocks down",
        evidence=", ".join(known[0].throttle or ()) or "no reason set",
    )

"""The GPU computes in the number formats that models come in.

Almost every model is published in bfloat16, which needs compute capability 8.0; FP8 needs 8.9 and FP4
10.0 to be faster than 16 bits. Below, weights are stored small and computed in 16 bits.
"""

from model_optimizer.core import Finding, Host
from model_optimizer.doctor import advice
from model_optimizer.facts import formats

LAYER = "gpu"
AFTER = ("gpu_generation",)
SOURCE = ("facts/compatibility/formats", "vLLM, platforms/cuda.py: which GPUs take bfloat16")
SHOWN = ("bf16", "fp8", "int8", "nvfp4")


def check(host: Host) -> Finding:
    gpus = advice.gpus(host)
    if isinstance(gpus, Finding):
        return gpus
    lowest = min((g.compute_capability for g in gpus if g.compute_capability), default=None)
    if lowest is None:
        return advice.unknown("the compute capability")
    how = {name: formats.support(name, lowest) for name in SHOWN}
    native = [name for name, support in how.items() if support == "native"]
    small = [name for name, support in how.items() if support == "weight-only"]
    evidence = f"compute capability {advice.dotted(lowest)}: " + ", ".join(f"{n} {s}" for n, s in how.items())
    if how["bf16"] != "native":
        return Finding(
            status="warn",
            message="this GPU has no bfloat16: models in it must be computed in float16",
            evidence=evidence,
            hint="serve with --dtype half, and look at the verification: some models overflow in float16",
        )
    rest = f"; {', '.join(small)} as small weights only" if small else ""
    return Finding(status="ok", message=f"computes {', '.join(native)}{rest}", evidence=evidence)

"""The installed TensorRT builds engines for this GPU.

Each release has a range of compute capabilities: Volta ended with 10.4, Blackwell began with 10.8.
Outside it the builder does not start.
"""

from model_optimizer.core import Finding, Host
from model_optimizer.doctor import advice
from model_optimizer.facts import tensorrt

LAYER = "packages"
AFTER = ("gpu_generation",)
SOURCE = ("facts/compatibility/tensorrt (release notes and support matrices)",)


def check(host: Host) -> Finding:
    version = (host.packages or {}).get("tensorrt")
    if version is None:
        return advice.not_here("no TensorRT in this environment")
    gpus = advice.gpus(host)
    if isinstance(gpus, Finding):
        return gpus
    release = tensorrt.release(version)
    lowest, highest = release.minimum_compute_capability, release.maximum_compute_capability
    if lowest is None and highest is None:
        return advice.unknown(f"which GPUs TensorRT {version} serves")
    marks = {release.mark("minimum_compute_capability"), release.mark("maximum_compute_capability")} - {""}
    evidence = f"TensorRT {release.version}: {advice.dotted(lowest)} to {advice.dotted(highest)}"
    evidence += f" ({', '.join(sorted(marks))})" if marks else ""
    for gpu in gpus:
        here = gpu.compute_capability
        if here and ((lowest and here < lowest) or (highest and here[0] > highest[0])):
            return Finding(
                status="fail",
                message=f"TensorRT {version} does not serve {gpu.name} ({advice.dotted(here)})",
                evidence=evidence,
                hint=_other(here),
            )
    return Finding(status="ok", message=f"TensorRT {version} serves this GPU", evidence=evidence)


def _other(capability: tuple[int, int]) -> str:
    """The newest release that serves a GPU, as advice."""
    rows = [tensorrt.release(version) for version in tensorrt.versions()]
    good = [
        row
        for row in rows
        if row.minimum_compute_capability
        and row.minimum_compute_capability <= capability
        and (row.maximum_compute_capability is None or capability[0] <= row.maximum_compute_capability[0])
    ]
    if not good:
        return "no release of TensorRT that is known serves it"
    last = good[-1].last or good[-1].version
    return f"the newest release that serves it is {last}: pip install 'tensorrt=={last}.*'"

"""The installed vLLM has code for this GPU.

A release is compiled for a list of compute capabilities. One that is not on it, and has no PTX to compile
from, ends with `no kernel image is available`.
"""

from model_optimizer.core import Finding, Host
from model_optimizer.doctor import advice, fitting
from model_optimizer.facts import vllm

LAYER = "packages"
AFTER = ("gpu_generation",)
SOURCE = (
    "facts/compatibility/vllm (docker/Dockerfile and CMakeLists.txt of each release)",
    "vllm-project/vllm#19906",
)


def check(host: Host) -> Finding:
    version = (host.packages or {}).get("vllm")
    if version is None or "+cpu" in version:
        return advice.not_here("no vLLM for GPUs in this environment")
    gpus = advice.gpus(host)
    if isinstance(gpus, Finding):
        return gpus
    release = vllm.release(version.partition("+")[0])
    known = [gpu for gpu in gpus if gpu.compute_capability]
    compiled, ptx = release.image.compute_capabilities, release.image.ptx
    bad = [g for g in known if not fitting.has_code(g.compute_capability or (0, 0), compiled, ptx=ptx)]
    evidence = f"vLLM {release.version} is compiled for {', '.join(map(advice.dotted, compiled or ()))}"
    if bad:
        return Finding(
            status="fail",
            message=f"vLLM {version} has no code for {bad[0].name} "
            f"({advice.dotted(bad[0].compute_capability)})",
            evidence=evidence,
            hint=fitting.other_release(bad[0].compute_capability or (0, 0)),
        )
    return Finding(status="ok", message=f"vLLM {version} has code for this GPU", evidence=evidence)

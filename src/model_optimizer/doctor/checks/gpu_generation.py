"""The GPU is of a generation that today's engines have code for.

vLLM's images begin at compute capability 7.5, TensorRT from 10.5 on too; Volta runs with older releases,
and Pascal with none of them.
"""

from model_optimizer.core import Finding, Host
from model_optimizer.doctor import advice
from model_optimizer.facts import tensorrt, vllm

LAYER = "gpu"
AFTER = ("gpu_visible",)
SOURCE = ("facts/compatibility: least compute capability of each release of vLLM and TensorRT",)


def check(host: Host) -> Finding:
    gpus = advice.gpus(host)
    if isinstance(gpus, Finding):
        return gpus
    newest, oldest = vllm.release(vllm.versions()[-1]), vllm.release(vllm.versions()[0])
    trt = tensorrt.release(tensorrt.versions()[-1])
    wanted = min(newest.minimum_compute_capability, trt.minimum_compute_capability or (99, 0))
    known = [gpu for gpu in gpus if gpu.compute_capability]
    evidence = ", ".join(f"{gpu.name} {advice.dotted(gpu.compute_capability)}" for gpu in known)
    if not known:
        return advice.unknown("the compute capability")
    too_old = [
        g for g in known if g.compute_capability and g.compute_capability < oldest.minimum_compute_capability
    ]
    old = [g for g in known if g.compute_capability and g.compute_capability < wanted]
    if too_old:
        return Finding(
            status="fail",
            message=f"{too_old[0].name} is too old for vLLM and TensorRT: compute capability "
            f"{advice.dotted(too_old[0].compute_capability)}",
            evidence=evidence,
            hint=f"a GPU of {advice.dotted(wanted)} (Turing, 2018) or newer is needed\n"
            "llama.cpp still builds for this one; the CPU engines work: mopt optimize MODEL",
        )
    if old:
        last, engine = _last_releases(old[0].compute_capability or (0, 0))
        return Finding(
            status="warn",
            message=f"{old[0].name} runs older releases only: vLLM up to {last}, TensorRT up to {engine}",
            evidence=evidence,
            hint=f"plan with --engine vllm=={last}, or use a GPU of {advice.dotted(wanted)} or newer",
        )
    return Finding(
        status="ok",
        message="compute capability "
        f"{advice.dotted(min(g.compute_capability or (0, 0) for g in known))}: today's "
        "engines have code for it",
        evidence=evidence,
    )


def _last_releases(capability: tuple[int, int]) -> tuple[str, str]:
    """The newest vLLM and the newest TensorRT that still take a GPU."""
    servers = [v for v in vllm.versions() if vllm.release(v).minimum_compute_capability <= capability]
    rows = [tensorrt.release(version) for version in tensorrt.versions()]
    fitting = [r for r in rows if (r.minimum_compute_capability or (99, 0)) <= capability]
    return servers[-1], (fitting[-1].last or fitting[-1].version) if fitting else "none"

"""The driver here runs the CUDA of what shall run.

An image brings its CUDA runtime and uses the host's driver. Any driver from the minimum of that major
version on will do; an older one only through forward compatibility, which GeForce and RTX cards do not
have.
"""

from model_optimizer.core import Finding, Host
from model_optimizer.core.target import Need, Target
from model_optimizer.doctor import advice, fitting

LAYER = "target"
TARGETED = True
AFTER = ("gpu_visible", "target_known")
SOURCE = (
    "docs.nvidia.com/deploy/cuda-compatibility, minor version and forward compatibility",
    "vLLM 0.33.0 docs, installation: VLLM_ENABLE_CUDA_COMPATIBILITY",
)


def check(host: Host, target: Target | None = None) -> Finding:
    if target is None:
        return Finding(status="skipped", message="nothing was named with --for")
    known = {need.asked: fitting.driver_runs(host, need) for need in target.needs if need.cuda}
    if not host.gpus and host.gpus is not None:
        return advice.not_here("no NVIDIA GPU here")
    if not known:
        return Finding(status="unknown", message="the CUDA of what shall run is not known")
    too_old = tuple(need for need in target.needs if known.get(need.asked) is False)
    if too_old:
        return _too_old(host, too_old)
    if None in known.values():
        return advice.unknown("the driver's version")
    shown = ", ".join(f"CUDA {need.cuda}" for need in target.needs if need.cuda)
    return Finding(
        status="ok",
        message=f"driver {host.driver_version} runs {shown}",
        evidence=_evidence(host, target.needs),
    )


def _too_old(host: Host, needs: tuple[Need, ...]) -> Finding:
    need = needs[0]
    consumer = any(advice.is_consumer(gpu) for gpu in host.gpus or ())
    message = (
        f"{need.asked} is built with CUDA {need.cuda}, which needs driver {need.minimum_driver} or newer; "
        f"here is {host.driver_version}"
    )
    if (
        need.product == "vllm"
        and need.kind == "image"
        and len(needs) == 1
        and fitting.may_be_forward_compatible(host, consumer)
    ):
        return Finding(
            status="warn",
            message=f"{message}: it runs only in compatibility mode",
            evidence=_evidence(host, needs),
            hint="docker run -e VLLM_ENABLE_CUDA_COMPATIBILITY=1 ...   # its libraries, on "
            "this data-centre GPU\n"
            f"better, the driver:\n{advice.install_driver(host)}",
        )
    other = (
        f"or take the build for CUDA 12: {_older_build(need)}"
        if need.product == "vllm" and len(needs) == 1
        else "or take a build for an older CUDA"
    )
    why = "; forward compatibility does not exist for this GPU" if consumer else ""
    return Finding(
        status="fail",
        message=message,
        evidence=_evidence(host, needs) + why,
        hint=f"{advice.install_driver(host)}\n{other}",
    )


def _older_build(need: Need) -> str:
    version = need.version or need.nearest or ""
    return f"vllm/vllm-openai:v{version}-cu129" if need.kind == "image" else f"vllm=={version}+cu129"


def _evidence(host: Host, needs: tuple[Need, ...]) -> str:
    wants = ", ".join(f"{n.asked}: CUDA {n.cuda}, driver >= {n.minimum_driver}" for n in needs if n.cuda)
    return f"{wants}; driver {host.driver_version}, its CUDA {advice.dotted(host.driver_cuda)}"

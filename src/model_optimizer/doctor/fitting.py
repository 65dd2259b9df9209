"""The two rules that decide whether compiled code runs: by GPU, and by driver. Pure, shared by checks."""

from model_optimizer.core import Host
from model_optimizer.core.target import Need
from model_optimizer.facts import drivers, vllm
from model_optimizer.facts.versions import key

Capability = tuple[int, int]


def has_code(gpu: Capability, compiled: tuple[Capability, ...] | None, *, ptx: bool) -> bool:
    """Code runs on the same major version with an equal or higher minor one; PTX also on all that is newer.

    True when the list is not known.
    """
    if not compiled:
        return True
    same = any(one[0] == gpu[0] and one[1] <= gpu[1] for one in compiled)
    return same or (ptx and max(compiled) <= gpu)


def other_release(gpu: Capability) -> str:
    """Which releases of vLLM have code for a GPU, as advice."""
    good = [v for v in vllm.versions() if _has(v, gpu)]
    if not good:
        return "no release of vLLM that is known has code for it"
    if good[-1] == vllm.versions()[-1]:
        return f"install vLLM {good[0]} or newer: pip install vllm=={good[-1]}"
    return f"the last release with code for it is {good[-1]}: pip install vllm=={good[-1]}"


def _has(version: str, gpu: Capability) -> bool:
    release = vllm.release(version)
    image = release.image
    return release.minimum_compute_capability <= gpu and has_code(
        gpu, image.compute_capabilities, ptx=image.ptx
    )


def driver_runs(host: Host, need: Need) -> bool | None:
    """Whether the driver runs the CUDA of a need by the rule of major versions; None when one is unknown.

    Windows numbers its drivers apart, so there (and in WSL2) the newest CUDA that the driver names decides.
    """
    if need.cuda is None:
        return None
    if host.wsl or host.os == "Windows":
        return None if host.driver_cuda is None else host.driver_cuda[0] >= int(need.cuda.partition(".")[0])
    if host.driver_version is None or need.minimum_driver is None:
        return None
    return key(host.driver_version) >= key(need.minimum_driver)


def may_be_forward_compatible(host: Host, consumer: bool) -> bool:
    """Forward compatibility: data-centre GPUs, on the driver branches that the rule names."""
    if consumer or not host.driver_version:
        return False
    return f"R{host.driver_version.partition('.')[0]}" in drivers.rule("forward-compatibility").branches

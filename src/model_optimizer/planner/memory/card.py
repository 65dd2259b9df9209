"""The memory of a card: of one that is named, of one in a host, or of the host itself."""

from dataclasses import replace
from typing import TYPE_CHECKING

from model_optimizer.core import GpuMemory, HostError, MoptError, UsageError
from model_optimizer.core.units import show_bytes
from model_optimizer.facts import decisions, gpus, memory

if TYPE_CHECKING:
    from model_optimizer.core import Gpu, Host
    from model_optimizer.facts.decisions import Rule
    from model_optimizer.facts.gpus import GpuFact

OTHERS = {"amd": "AMD's", "intel": "Intel's"}
SOLD = "as it is sold"
SPLIT = "MIG splits it and an engine gets one instance: name that memory with --vram"


def named(name: str, *, used_bytes: int | None = None) -> GpuMemory:
    """A GPU of the facts. UsageError when the name fits none or several.

    One without CUDA has capability 0.0; `require_cuda` refuses it for all that need CUDA.
    """
    match = gpus.match(name)
    fact = match.fact
    if fact.compute_capability is None:
        return GpuMemory(
            name=fact.name,
            total_bytes=fact.memory_bytes,
            compute_capability=(0, 0),
            used_bytes=used_bytes or 0,
            because=SOLD,
        )
    total, row = memory.visible(fact)
    if row is None:
        because = "as CUDA shows it"
    else:
        because = f"{row.share:.1%} of {show_bytes(fact.memory_bytes)}, as of cards like it"
    if match.because:
        because += f"; {match.because}"
    return GpuMemory(
        name=fact.name,
        total_bytes=total,
        compute_capability=fact.compute_capability,
        used_bytes=used_bytes or 0,
        because=because,
        source="table" if row is None else "assumed",
    )


def shared_with(fact: "GpuFact") -> "Rule | None":
    """What is left to a display or the system, unless somebody knows better: on most cards for desktops."""
    if fact.shared_memory:
        return decisions.rule("reserve-shared")
    consumer = fact.name.startswith(("GeForce", "RTX", "AMD"))
    return decisions.rule("reserve-geforce") if consumer else None


def require_cuda(gpu: GpuMemory, engine: str) -> None:
    """MoptError for a GPU without CUDA, where llama.cpp runs and no other engine."""
    if engine == "llama.cpp" or gpu.because != SOLD:
        return
    fact = gpus.find(gpu.name)
    raise MoptError(
        f"{fact.name} runs none of the engines that are modelled here, except llama.cpp",
        cause=(fact.unsupported or f"{fact.vendor} {fact.architecture} has no CUDA",),
        hint=("ask for --engine llama.cpp, which runs there with Vulkan or ROCm",),
        reference="gpu-unsupported",
    )


def of_host(host: "Host", *, used_bytes: int | None = None) -> GpuMemory:
    """The GPUs of a host, of which the fullest counts. HostError when it has none, or different ones."""
    if not host.gpus:
        foreign(host)
        known = "there is no GPU here" if host.gpus is not None else "the GPUs here could not be read"
        raise HostError(
            known, hint=("name one with --gpu, for example --gpu h100", "`mopt facts gpu` lists them"),
            reference="no-gpu",
        )  # fmt: skip
    if len({gpu.name for gpu in host.gpus}) > 1:
        raise UsageError(
            "the GPUs of this host differ",
            cause=tuple(gpu.name for gpu in host.gpus),
            hint=("name the one that is meant with --gpu",),
        )
    gpu = max(host.gpus, key=_used)
    total, capability = gpu.memory_bytes, gpu.compute_capability
    because = "as the driver shows it"
    if total is None or capability is None:
        fact = gpus.find(gpu.name)
        total = total or memory.visible(fact)[0]
        capability = capability or fact.compute_capability or (0, 0)
        because = f"not read completely; the rest is that of {fact.name}"
    if gpu.mig and gpu.mig_instances:
        because += f"; {SPLIT}"
    return GpuMemory(
        name=gpu.name,
        total_bytes=total,
        compute_capability=capability,
        used_bytes=_used(gpu) if used_bytes is None else used_bytes,
        because=because,
        source="measured",
    )


def instance(memory: GpuMemory, vram_bytes: int | None) -> tuple[GpuMemory, int | None]:
    """(the memory, the budget): of a card that MIG splits, the budget is the whole of one instance."""
    if SPLIT not in memory.because or not vram_bytes or vram_bytes >= memory.total_bytes:
        return memory, vram_bytes
    share = vram_bytes / memory.total_bytes
    because = f"a MIG instance: {share:.3g} of the card, of its bandwidth and computing too"
    return replace(memory, total_bytes=vram_bytes, used_bytes=0, share=share, because=because), None


def foreign(host: "Host") -> None:
    """HostError for a host whose GPU is not NVIDIA's: what the bus says is not enough to plan for it."""
    found = next((a for a in host.adapters or () if a.vendor in OTHERS and a.kind == "compute"), None)
    if found is None or host.gpus:
        return
    raise HostError(
        f"the GPU here is {OTHERS[found.vendor]}, and its name and memory are not read from it",
        cause=(f"the bus says {found.vendor} {found.device}, driver {found.driver or 'none'}",),
        hint=("name it with --gpu, for example --gpu mi50: llama.cpp runs there with ROCm or Vulkan",),
        reference="gpu-foreign",
    )


def _used(gpu: "Gpu") -> int:
    if gpu.memory_bytes is None or gpu.memory_free_bytes is None:
        return 0
    return max(0, gpu.memory_bytes - gpu.memory_free_bytes)


def host_memory(host: "Host", *, used_bytes: int | None = None) -> GpuMemory:
    """The memory that an engine on the CPU may take. HostError when it could not be read."""
    total = host.memory_available_bytes or host.memory_bytes
    if total is None:
        raise HostError("the memory of this machine could not be read", hint=("pass --vram",))
    return GpuMemory(
        name="host memory",
        total_bytes=total,
        compute_capability=(0, 0),
        used_bytes=used_bytes or 0,
        because="what the system has available",
        source="measured",
    )

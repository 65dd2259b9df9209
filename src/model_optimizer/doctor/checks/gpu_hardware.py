"""There is an NVIDIA GPU in this machine.

CUDA, TensorRT and the engines here need one. Without it the CPU engines remain; a compute card of another
maker cannot be used.
"""

from model_optimizer.core import Finding, Host
from model_optimizer.doctor import advice

LAYER = "hardware"
AFTER = ("hybrid_graphics",)
SOURCE = ("/sys/bus/pci (vendor 10de is NVIDIA)", "facts/gpus, AMD Instinct MI50: why it is not supported")


def check(host: Host) -> Finding:
    found = advice.has_nvidia(host)
    if found is None:
        return (
            advice.not_here("the driver tells what GPUs there are")
            if host.wsl or host.os == "Windows"
            else advice.unknown("the PCI bus")
        )
    adapters = host.adapters or ()
    evidence = ", ".join(f"{a.vendor} {a.device} ({a.kind})" for a in adapters) or "no adapter on the PCI bus"
    if found:
        count = sum(a.vendor == "nvidia" and a.kind != "switch" for a in adapters) or len(host.gpus or ())
        return Finding(
            status="ok", message=f"{advice.count(count, 'NVIDIA GPU')} in the machine", evidence=evidence
        )
    if {a.kind for a in adapters if a.vendor == "amd"} == {"compute"}:
        return Finding(
            status="fail",
            message="the GPU is AMD's: vLLM's CUDA builds and TensorRT do not run on it",
            evidence=evidence,
            hint="CUDA and TensorRT need an NVIDIA GPU; vLLM has ROCm builds of its own for MI200 and newer\n"
            "llama.cpp runs on it with Vulkan: mopt plan MODEL --gpu NAME\n"
            "the CPU engines work here: mopt optimize MODEL",
        )
    return Finding(
        status="warn",
        message="no NVIDIA GPU in this machine: only CPU engines can run here",
        evidence=evidence,
        hint="in a virtual machine, pass the GPU through; else plan with --gpu NAME for the "
        "machine that has one",
    )

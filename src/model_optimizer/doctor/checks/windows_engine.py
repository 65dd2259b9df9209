"""On Windows, engines that run there are chosen.

vLLM, SGLang and TensorRT-LLM serve on Linux only; TensorRT for RTX and ONNX Runtime run on Windows itself.
"""

from model_optimizer.core import Finding, Host
from model_optimizer.doctor import advice

LAYER = "machine"
AFTER: tuple[str, ...] = ()
SOURCE = ("facts/compatibility/vllm_notes.toml, windows", "facts/compatibility/tensorrt_rtx, platforms")


def check(host: Host) -> Finding:
    if host.os is None:
        return advice.unknown("the operating system")
    if host.os != "Windows":
        return Finding(status="ok", message=f"{host.os}: engines are made for it", evidence=host.distribution)
    return Finding(
        status="warn",
        message="this is Windows: vLLM and TensorRT-LLM do not run on it, only inside WSL2",
        evidence=host.distribution,
        hint="in PowerShell: wsl --install -d Ubuntu-24.04, and install vLLM there\n"
        "on Windows itself: TensorRT for RTX, ONNX Runtime, llama.cpp",
    )

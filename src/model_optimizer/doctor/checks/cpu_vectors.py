"""The CPU has the instructions that make 8-bit inference fast.

ONNX Runtime and vLLM's CPU build run on any x86-64-v3 machine; AVX-512 with VNNI, or AMX, decides
whether integer arithmetic is faster than floating point.
"""

from model_optimizer.core import Finding, Host

LAYER = "machine"
AFTER: tuple[str, ...] = ()
SOURCE = ("onnxruntime.ai, quantization of models, which instructions it uses",)


def check(host: Host) -> Finding:
    features = host.cpu.features
    if features is None:
        return Finding(status="unknown", message="the CPU's instruction sets could not be read")
    here = set(features)
    if here & {"avx512_vnni", "avx_vnni", "amx_int8", "asimddp", "i8mm"}:
        return Finding(status="ok", message="the CPU has integer dot products", evidence=_evidence(here))
    if here & {"avx2", "asimd"}:
        return Finding(
            status="warn",
            message="the CPU has no integer dot products: 8-bit models save memory, not time",
            evidence=_evidence(here),
            hint="compare `int8` with `fp32` in the report before you keep it",
        )
    return Finding(
        status="fail",
        message="the CPU has neither AVX2 nor NEON; PyTorch and ONNX Runtime wheels need one of them",
        evidence=_evidence(here),
        hint="use a machine from 2013 or later",
    )


def _evidence(features: set[str]) -> str:
    known = ("avx2", "avx512f", "avx512_vnni", "avx_vnni", "avx512_bf16", "amx_int8", "asimd", "asimddp")
    return ", ".join(name for name in known if name in features) or "none of the vector sets"

"""What is served, on what, and how: everything that the time of a step depends on."""

from dataclasses import dataclass

from model_optimizer.core import ModelSpec, Scheme, UsageError
from model_optimizer.facts import formats
from model_optimizer.facts.gpus import GpuFact

Capability = tuple[int, int]

# The format whose support decides for a scheme.
FORMATS = {
    "bf16": "bf16", "fp8": "fp8", "fp8_static": "fp8", "fp8_block": "fp8", "awq_int4": "awq_int4",
    "gptq_int4": "gptq_int4", "int8": "int8", "nvfp4": "nvfp4", "mxfp4": "mxfp4",
}  # fmt: skip
PLAIN = frozenset({"bf16", "fp16", "fp32"})
# Blocks of FP8 are multiplied in FP8 from here on; before it vLLM expands them to 16 bits.
FP8_BLOCK_FROM = (9, 0)
# These have INT8 kernels of their own on every generation; the table of formats is vLLM's.
NETWORKS = frozenset({"tensorrt", "tensorrt_rtx"})
SIXTEEN_BIT_ROLES = frozenset(
    {"head", "router", "embedding", "indexer", "pooler", "classifier", "vision", "mixer"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """One replica. `version` is the release that facts know, which may be near the one that was asked for.

    `scheme` is the number format of the linear layers; `kv_bits` that of the KV cache. `eager` is without
    CUDA graphs. `cuda_graphs` of engines other than vLLM are taken as present.
    """

    model: ModelSpec
    gpu: GpuFact
    scheme: Scheme
    engine: str = "vllm"
    version: str | None = None
    kv_bits: int = 16
    tensor_parallel: int = 1
    pipeline_parallel: int = 1
    expert_parallel: bool = False
    eager: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """How the weights of one role are stored and multiplied. `bytes` are those of one parameter.

    `kernel` is a name in facts.speed, `native` False when weights are expanded to 16 bits first.
    """

    kernel: str
    bytes: float
    native: bool = True


def plain(scheme: Scheme) -> Format:
    return Format(kernel="bf16", bytes=4 if scheme.name == "fp32" else 2)


def format_of(setup: Setup, role: str) -> Format:
    """The format of a role's weights. UsageError when the engine cannot run the scheme on this GPU."""
    scheme = setup.scheme
    if scheme.name in PLAIN:
        return plain(scheme)
    if role in SIXTEEN_BIT_ROLES or (scheme.name == "mxfp4" and role != "expert"):
        return Format(kernel="bf16", bytes=2)
    size = scheme.weight_bits / 8 + _scales(scheme)
    if not _native(setup):
        return Format(
            kernel=_moe_name(scheme) if role == "expert" else "weight_only", bytes=size, native=False
        )
    kernel = {"fp8_static": "fp8", "int8": "fp8"}.get(scheme.name, scheme.name)
    return Format(kernel=kernel, bytes=size)


def require_support(setup: Setup) -> None:
    """UsageError when the engine has no kernel for the scheme on this GPU."""
    gpu, scheme = setup.gpu, setup.scheme
    if gpu.unsupported or gpu.compute_capability is None:
        raise UsageError(
            f"no speed is known for {gpu.name}",
            cause=(gpu.unsupported or "it is not an NVIDIA GPU, and nothing was measured on it",),
        )
    if scheme.name not in FORMATS:
        return
    if _support(setup) == "no":
        raise UsageError(
            f"{setup.engine} does not run `{scheme.name}` on {gpu.name}",
            cause=(f"it has no kernel for compute capability {_dotted(gpu.compute_capability)}",),
            hint=("`mopt facts format " + FORMATS[scheme.name] + "` says where it runs", _instead(setup)),
        )


def _instead(setup: Setup) -> str:
    for name in ("fp16", "fp8", "awq_int4"):
        if name == "fp16" or formats.support(FORMATS[name], _capability(setup)) != "no":
            return f"take for example `--scheme {name}`"
    return "take another scheme"


def _native(setup: Setup) -> bool:
    if setup.scheme.name == "fp8_block" and _capability(setup) < FP8_BLOCK_FROM:
        return False
    return setup.scheme.activation_bits < 16 and _support(setup) == "native"


def _support(setup: Setup) -> str:
    if setup.scheme.name == "int8" and setup.engine in NETWORKS:
        return "native"
    name = FORMATS.get(setup.scheme.name)
    if name is None:
        return "weight-only" if setup.scheme.name not in PLAIN else "native"
    version = setup.version if setup.engine == "vllm" else None
    found = formats.support(name, _capability(setup), vllm=version)
    return found if found != "unknown" else formats.support(name, _capability(setup))


def _capability(setup: Setup) -> Capability:
    return setup.gpu.compute_capability or (0, 0)


def _scales(scheme: Scheme) -> float:
    """Bytes of scale a parameter: two bytes a group, one for formats with 8-bit scales, none per channel."""
    if not scheme.group_size:
        return 0.0
    if scheme.name == "fp8_block":
        return 4 / scheme.group_size**2
    return (1 if scheme.weight_number == "fp4" else 2) / scheme.group_size


def _moe_name(scheme: Scheme) -> str:
    return {"mxfp4": "mxfp4"}.get(scheme.name, "int4" if scheme.weight_bits == 4 else "bf16")


def _dotted(capability: Capability) -> str:
    return f"{capability[0]}.{capability[1]}"

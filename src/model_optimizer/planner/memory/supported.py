"""What vLLM does not run on a GPU at all, whatever its memory."""

from model_optimizer.core import FitQuestion, MoptError, Scheme

from .limits import release_of

BF16_FROM = (8, 0)


def require_supported(question: FitQuestion, version: str) -> None:
    """MoptError when the engine or the number format does not run on this GPU at all."""
    gpu, release, scheme = question.gpu, release_of(version), question.scheme
    capability = ".".join(map(str, gpu.compute_capability))
    if release is not None and gpu.compute_capability < release.minimum_compute_capability:
        least = ".".join(map(str, release.minimum_compute_capability))
        raise MoptError(
            f"vLLM {version} does not run on {gpu.name}",
            cause=(f"it has compute capability {capability}, and {least} is the least",),
            hint=("ask for --engine llama.cpp, which runs there",),
            reference="gpu-unsupported",
        )
    if question.dtype == "bf16" and gpu.compute_capability < BF16_FROM:
        raise MoptError(
            f"{gpu.name} does not compute in bf16",
            cause=(f"it has compute capability {capability}, and bf16 begins at 8.0",),
            hint=("pass --dtype fp16",),
            reference="dtype-unsupported",
        )
    if scheme is None:
        return
    least, most = scheme.min_compute_capability, scheme.max_compute_capability
    if least and scheme.weight_bits < 16 and gpu.compute_capability < least:
        raise _not_there(scheme, gpu.name, f"it begins at compute capability {least[0]}.{least[1]}")
    if most and gpu.compute_capability > most:
        raise _not_there(scheme, gpu.name, f"it ends at compute capability {most[0]}.{most[1]}")


def _not_there(scheme: Scheme, gpu: str, cause: str) -> MoptError:
    return MoptError(
        f"vLLM does not run {scheme.name} on {gpu}", cause=(cause,), reference="scheme-unsupported"
    )

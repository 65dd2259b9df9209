"""Does it fit: one question, answered by the rules of the engine it is about."""

from dataclasses import replace
from typing import TYPE_CHECKING

from model_optimizer.core import Fit, FitQuestion, UsageError

if TYPE_CHECKING:
    from model_optimizer.core import Scheme

    from .memory import handed

MODELLED = ("vllm", "llama.cpp")
_SPELLINGS = {
    "llama_cpp": "llama.cpp", "llamacpp": "llama.cpp", "trt_llm": "tensorrt_llm", "trtllm": "tensorrt_llm",
    "ort": "onnxruntime",
}  # fmt: skip
KNOWN_UNMODELLED = ("sglang", "tensorrt_llm", "tensorrt", "tensorrt_rtx")


def engine_name(text: str) -> str:
    """One spelling of the ways to write an engine: `llama-cpp`, `LlamaCpp`, `trt-llm`."""
    plain = text.strip().lower().replace("-", "_")
    return _SPELLINGS.get(plain, plain)


def fit(
    question: FitQuestion, *, scheme: "Scheme | None" = None, memory: "handed.Memory | None" = None
) -> Fit:
    """`memory` is the arithmetic of an engine that brings its own, with the `scheme` it is asked for.

    UsageError for numbers that contradict the model, and for an engine whose memory is not modelled.
    """
    from .memory import card

    if question.gguf is not None and question.engine != "llama.cpp":
        raise UsageError(
            f"`{question.gguf.name}` is a GGUF file, and {question.engine} is not asked about it here",
            hint=("pass --engine llama.cpp, or the folder or hub id of the original model",),
            reference="model-format",
        )
    card.require_cuda(question.gpu, question.engine)
    if question.engine == "vllm":
        from .memory import vllm

        return _said_free(vllm.fit(question), question)
    if question.engine == "llama.cpp":
        from .memory import llama_cpp

        gguf = question.gguf or llama_cpp.from_spec(question.model, question.scheme)
        return _said_free(llama_cpp.fit(question, gguf), question)
    if memory is not None and scheme is not None:
        from .memory import handed

        return handed.fit(question, scheme, memory)
    raise UsageError(
        f"the memory of {question.engine} is not modelled",
        cause=(
            ("its rule for the KV cache was not measured here, and a guess would look like a number",)
            if question.engine in KNOWN_UNMODELLED
            else ()
        ),
        hint=(f"modelled: {', '.join(MODELLED)}, onnxruntime, pytorch",),
        reference="not-modelled",
    )


def _said_free(found: Fit, question: FitQuestion) -> Fit:
    """The answer with a note where a card that was only named may have a display on it."""
    from model_optimizer.facts import gpus

    from .memory import card

    gpu = question.gpu
    if gpu.source == "measured" or gpu.used_bytes or question.vram_bytes is not None:
        return found
    known = next((fact for fact in gpus.load_all() if fact.name == gpu.name), None)
    rule = card.shared_with(known) if known else None
    if rule is None:
        return found
    held = f"{rule.value / 2**20:.0f}MiB"
    said = f"the card is taken as empty; `mopt plan` leaves {held} of it ({rule.because})"
    return replace(found, notes=(*found.notes, f"{said}, as --reserve {held} does here"))

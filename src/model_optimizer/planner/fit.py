"""Does it fit: one question, answered by the rules of the engine it is about."""

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

        return vllm.fit(question)
    if question.engine == "llama.cpp":
        from .memory import llama_cpp

        return llama_cpp.fit(question, question.gguf or llama_cpp.from_spec(question.model, question.scheme))
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

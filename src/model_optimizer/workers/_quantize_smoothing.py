"""Which norms of a model can take the scales that SmoothQuant and AWQ move out of activations.

llm-compressor lists architectures it knows and takes the layout of Llama for all others, also where it does
not hold. For Gemma 2 and 3 its list for SmoothQuant names the norm behind attention instead of the one before
the feed-forward layers: the model that comes out says something else.
"""

from collections import Counter
from typing import Any

from _quantize_source import Source

BEFORE = "pre_feedforward_layernorm"
"""Where a layer has this norm, `post_attention_layernorm` is no longer the one before the MLP."""

ATTENTION = ["re:.*q_proj$", "re:.*k_proj$", "re:.*v_proj$"]
MLP = ["re:.*gate_proj$", "re:.*up_proj$"]
EVERY_LAYER = ("q_proj", "k_proj", "v_proj", "post_attention_layernorm", "gate_proj", "up_proj")


def like_llama(source: Source) -> bool:
    """Whether every layer with a norm before attention has what the layout of Llama has."""
    count = _kinds(source)
    return count["input_layernorm"] > 0 and all(
        count[kind] == count["input_layernorm"] for kind in EVERY_LAYER
    )


def like_gemma(source: Source) -> bool:
    count = _kinds(source)
    return 0 < count["input_layernorm"] == count[BEFORE] == count["q_proj"] == count["gate_proj"]


def smoothquant(source: Source, strength: float) -> list[Any]:
    """The modifier, or none where no norm could take the scales."""
    from llmcompressor.modifiers.transform.smoothquant import SmoothQuantModifier
    from llmcompressor.modifiers.transform.smoothquant.utils import MAPPINGS_REGISTRY

    if like_gemma(source):
        layers = [(ATTENTION, "re:.*input_layernorm$"), (MLP, f"re:.*{BEFORE}$")]
        return [SmoothQuantModifier(smoothing_strength=strength, mappings=layers)]
    if _architecture(source) in MAPPINGS_REGISTRY or like_llama(source):
        return [SmoothQuantModifier(smoothing_strength=strength)]
    return []


def awq(source: Source, steps: int) -> Any:
    """The modifier. Embedding models of Gemma are not in the library's list; its language models are."""
    from llmcompressor.modifiers.transform.awq import AWQModifier
    from llmcompressor.modifiers.transform.awq.mappings import AWQ_MAPPING_REGISTRY

    if like_gemma(source) and _architecture(source) not in AWQ_MAPPING_REGISTRY:
        kind = "Gemma3ForCausalLM" if _kinds(source)["q_norm"] else "Gemma2ForCausalLM"
        return AWQModifier(n_grid=steps, mappings=AWQ_MAPPING_REGISTRY[kind])
    return AWQModifier(n_grid=steps)


def _architecture(source: Source) -> str:
    return str(source.config["architectures"][0])


def _kinds(source: Source) -> Counter[str]:
    """How many weights have each last name, `q_proj` for example."""
    weights = (tensor.module for tensor in source.tensors if tensor.name.endswith(".weight"))
    return Counter(module.rpartition(".")[2] for module in weights)

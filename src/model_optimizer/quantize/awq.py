"""4-bit integer weights, scaled by what activations say (AWQ), by llm-compressor."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

from model_optimizer.core import ModelSpec, Scheme

from . import _compressor
from ._choices import Choices

READS = "safetensors"
FROM = _compressor.FLOATS
WRITES = {"awq_int4": "compressed_tensors"}
TASKS = frozenset({"generate", "embed", "rerank"})
ENVIRONMENT = "llm_compressor"
TAKES_CHOICES = True


def _request(scheme: Scheme, choices: Choices) -> Mapping[str, Any]:
    return {
        "method": "awq",
        "preset": "W4A16",
        "group_size": scheme.group_size,
        "symmetric": choices.symmetric,
        "search_steps": choices.search_steps,
    }


DRIVE = _compressor.Drive(
    tool="awq",
    environment=ENVIRONMENT,
    worker="quantize_calibrated",
    request=_request,
    format="compressed_tensors",
)
needs, make = DRIVE.needs, DRIVE.make


LISTED = frozenset({
    "BloomForCausalLM", "CohereForCausalLM", "Cohere2ForCausalLM", "Cohere2MoeForCausalLM",
    "DeepseekV2ForCausalLM", "Ernie4_5_MoeForCausalLM", "Exaone4ForCausalLM",
    "Gemma2ForCausalLM", "Gemma3ForCausalLM", "Glm4MoeForCausalLM", "Glm4MoeLiteForCausalLM",
    "GlmMoeDsaForCausalLM", "MixtralForCausalLM", "OlmoForCausalLM", "Olmo3ForCausalLM", "Phi3ForCausalLM",
    "Qwen2MoeForCausalLM", "Qwen3MoeForCausalLM", "Qwen3NextForCausalLM",
})  # fmt: skip
"""Of which llm-compressor 0.14 knows the layers that follow each norm; Mixtral was made. What it has of
DeepSeek-V3 fails at the first, dense layers (tried)."""

LIKE_LLAMA = (
    "q_proj", "k_proj", "v_proj", "o_proj", "post_attention_layernorm", "gate_proj", "up_proj", "down_proj",
)  # fmt: skip
"""Of all others it expects these behind each `input_layernorm`."""


def refuses(model: ModelSpec) -> str | None:
    """Scales are folded into the norm before a layer: encoders have theirs behind it, and of decoders only
    known layouts can be taken."""
    if model.task != "generate" and (not model.groups or model.kv_bytes_per_token() == 0):
        return "AWQ folds its scales into the norm before each layer, and an encoder like BERT has none there"
    if not model.weights or model.architecture in LISTED or _like_llama(model) or _like_gemma(model):
        return None
    return (
        f"AWQ folds its scales into the norm before each layer, and llm-compressor 0.14 does not know which "
        f"that is in `{model.architecture}`"
    )


def _like_llama(model: ModelSpec) -> bool:
    count = _kinds(model)
    return count["input_layernorm"] > 0 and all(count[k] == count["input_layernorm"] for k in LIKE_LLAMA)


def _like_gemma(model: ModelSpec) -> bool:
    """As workers/_quantize_smoothing.py knows it."""
    count = _kinds(model)
    norms = count["input_layernorm"]
    return norms > 0 and norms == count["pre_feedforward_layernorm"] == count["q_proj"] == count["gate_proj"]


def _kinds(model: ModelSpec) -> Counter[str]:
    """How many weights have each last name."""
    found: Counter[str] = Counter()
    for weight in model.weights:
        found[weight.name.removesuffix(".weight").rpartition(".")[2]] += weight.copies
    return found

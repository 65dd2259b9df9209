"""Gemma 1, 2 and 3, and Gemma 3 with its SigLIP encoder."""

from dataclasses import replace

from model_optimizer.system.models import vision
from model_optimizer.system.models.config import Config
from model_optimizer.system.models.decoder import Style, alternating, decoder
from model_optimizer.system.models.shape import Shape

MODEL_TYPES = ("gemma", "gemma2", "gemma3", "gemma3_text")

NORMS = (
    "input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm",
)  # fmt: skip

# What the published configs of Gemma 3 with images leave out.
GEMMA3 = {
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "vocab_size": 262208,
    "max_position_embeddings": 131072,
}


def shape(config: Config) -> Shape:
    config.fill(head_dim=256)
    if config.model_type in ("gemma3", "gemma3_text"):
        config.fill(**GEMMA3)
    layers, bias = config.layers(), config.flag("attention_bias")
    if config.model_type == "gemma":
        return decoder(config, Style(tied=True, bias=bias, output_bias=bias))
    window = config.whole("sliding_window", default=4096)
    if config.model_type == "gemma2":
        style = Style(tied=True, norms=NORMS, bias=bias, output_bias=bias)
        return decoder(config, style, windows=alternating(config, layers, window, pattern=2))
    windows = alternating(
        config,
        layers,
        window,
        pattern=config.count("sliding_window_pattern", "_sliding_window_pattern", default=6),
    )
    style = Style(tied=True, norms=NORMS, bias=bias, output_bias=bias, qk_norm="head")
    if config.model_type == "gemma3_text":
        return decoder(config, style, windows=windows)
    style = replace(style, prefix="language_model.model", head="language_model.lm_head")
    made = decoder(config, style, windows=windows)
    return replace(made, encoder=vision.siglip_for_gemma3(config, made.hidden_size))

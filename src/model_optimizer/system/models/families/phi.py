"""Phi-1.5 and Phi-2."""

from model_optimizer.system.models.config import Config
from model_optimizer.system.models.decoder import Style, decoder
from model_optimizer.system.models.shape import Shape

MODEL_TYPES = ("phi",)

STYLE = Style(
    bias=True,
    output_bias=True,
    attention_output="dense",
    mlp="plain",
    mlp_names=("fc1", "fc2"),
    mlp_bias=True,
    norms=("input_layernorm",),
    norm_bias=True,
    final_norm="final_layernorm",
    head_bias=True,
    each_head=True,
)


def shape(config: Config) -> Shape:
    return decoder(config, STYLE)

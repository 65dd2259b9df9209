"""Mamba: a state, no attention and no growing cache at all."""

from dataclasses import replace
from math import ceil

from model_optimizer.system.models.config import Config
from model_optimizer.system.models.decoder import Style, finish
from model_optimizer.system.models.parts import Heads, norm
from model_optimizer.system.models.recurrent import Mamba1
from model_optimizer.system.models.shape import Shape

MODEL_TYPES = ("mamba",)

STYLE = Style(prefix="backbone", embedding="embeddings", final_norm="norm_f", tied=True)


def shape(config: Config) -> Shape:
    hidden, layers = config.need("hidden_size"), config.layers()
    inner = config.count("intermediate_size") or config.count("expand", default=2) * hidden
    mamba = Mamba1(
        hidden=hidden, inner=inner, state=config.need("state_size"), kernel=config.need("conv_kernel"),
        rank=config.count("time_step_rank") or ceil(hidden / 16), bias=config.flag("use_bias"),
        convolution_bias=config.flag("use_conv_bias", default=True),
    )  # fmt: skip
    weights = mamba.weights("backbone.layers.*.mixer", layers) + norm(
        "backbone.layers.*.norm", hidden, layers
    )
    sizes = Heads(hidden=hidden, heads=0, kv_heads=0, head_dim=0)
    made = finish(
        config,
        STYLE,
        sizes,
        layers=layers,
        weights=weights,
        intermediate=inner,
        groups=(mamba.group(config, layers),),
    )
    return replace(made, attention="linear")

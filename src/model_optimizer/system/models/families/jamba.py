"""Jamba: one attention layer in eight, Mamba in the others, experts in every other layer."""

from math import ceil

from model_optimizer.system.models.config import Config
from model_optimizer.system.models.decoder import Style, attention_of, finish
from model_optimizer.system.models.moe import Moe
from model_optimizer.system.models.parts import Heads, mlp, norm
from model_optimizer.system.models.recurrent import Mamba1
from model_optimizer.system.models.shape import Shape

MODEL_TYPES = ("jamba",)

STYLE = Style(norms=("input_layernorm", "pre_ff_layernorm"), final_norm="final_layernorm")


def shape(config: Config) -> Shape:
    layers, sizes, intermediate = config.layers(), Heads.of(config), config.need("intermediate_size")
    full = _periodic(config, layers, "attn_layer", period=8, offset=4)
    mamba = Mamba1(
        hidden=sizes.hidden, inner=config.count("mamba_expand", default=2) * sizes.hidden,
        state=config.need("mamba_d_state"), kernel=config.need("mamba_d_conv"),
        rank=config.count("mamba_dt_rank") or ceil(sizes.hidden / 16), bias=config.flag("mamba_proj_bias"),
        convolution_bias=config.flag("mamba_conv_bias", default=True), norms=True,
    )  # fmt: skip
    routed = config.need("num_experts")
    sparse = _periodic(config, layers, "expert_layer", period=2, offset=1) if routed > 1 else 0
    moe = Moe(
        layers=sparse, routed=routed, active=config.need("num_experts_per_tok"), intermediate=intermediate,
        block="feed_forward", router="router",
    )  # fmt: skip
    weights = attention_of(STYLE, "model.layers.*", sizes, full)
    weights += mamba.weights("model.layers.*.mamba", layers - full)
    for name in STYLE.norms:
        weights += norm(f"model.layers.*.{name}", sizes.hidden, layers)
    weights += mlp("model.layers.*.feed_forward", sizes.hidden, intermediate, layers - sparse)
    weights += moe.weights("model.layers.*", sizes.hidden)
    return finish(
        config, STYLE, sizes, layers=layers, weights=weights, moe=moe, intermediate=intermediate,
        groups=(sizes.group(full), mamba.group(config, layers - full)),
    )  # fmt: skip


def _periodic(config: Config, layers: int, name: str, *, period: int, offset: int) -> int:
    every = config.count(f"{name}_period", default=period) or 1
    start = config.count(f"{name}_offset", default=offset)
    return sum(1 for layer in range(layers) if layer % every == start)

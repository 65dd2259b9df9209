"""Llama 4: most layers attend within chunks, some or all have experts, images enter through an encoder."""

from model_optimizer.core import LayerGroup
from model_optimizer.system.models import vision
from model_optimizer.system.models.config import Config
from model_optimizer.system.models.decoder import Style, attention_of, finish
from model_optimizer.system.models.moe import Moe
from model_optimizer.system.models.parts import Heads, mlp, norm
from model_optimizer.system.models.shape import Shape

MODEL_TYPES = ("llama4", "llama4_text")


def shape(config: Config) -> Shape:
    multimodal = config.model_type == "llama4"
    style = Style(
        prefix="language_model.model" if multimodal else "model",
        head="language_model.lm_head" if multimodal else "lm_head",
        bias=config.flag("attention_bias"), output_bias=config.flag("attention_bias"),
    )  # fmt: skip
    layers, sizes = config.layers(), Heads.of(config)
    intermediate = config.need("intermediate_size")
    moe = Moe(
        layers=_sparse(config, layers),
        routed=config.need("num_local_experts"),
        active=config.need("num_experts_per_tok"),
        intermediate=intermediate,
        shared_count=1,
        shared_intermediate=intermediate,
        shared="shared_expert",
        block="feed_forward",
        experts="experts",
        kind="fused",
        router="router",
    )
    layer = f"{style.prefix}.{style.layer}"
    weights = attention_of(style, layer, sizes, layers)
    for name in style.norms:
        weights += norm(f"{layer}.{name}", sizes.hidden, layers)
    dense = layers - moe.layers
    wide = config.need("intermediate_size_mlp") if dense else config.count("intermediate_size_mlp")
    if dense:
        weights += mlp(f"{layer}.feed_forward", sizes.hidden, wide, dense)
    weights += moe.weights(layer, sizes.hidden)
    return finish(
        config, style, sizes, layers=layers, weights=weights, moe=moe, intermediate=wide or intermediate,
        groups=_groups(config, sizes, layers),
        encoder=vision.llama4(config, sizes.hidden) if multimodal else (),
    )  # fmt: skip


def _sparse(config: Config, layers: int) -> int:
    named = config.numbers("moe_layers")
    if any(not 0 <= layer < layers for layer in named):
        config.contradiction(f"`moe_layers` names others than the {layers} there are")
    return len(named) if named else layers // (config.count("interleave_moe_layer_step", default=1) or 1)


def _groups(config: Config, sizes: Heads, layers: int) -> tuple[LayerGroup, ...]:
    """Layers with rotary embedding attend within a chunk; every fourth has none and sees everything."""
    chunk = config.whole("attention_chunk_size", default=8192, condensed=8192)
    rotary = config.numbers("no_rope_layers")
    if rotary and len(rotary) != layers:
        config.contradiction(f"`no_rope_layers` speaks of {len(rotary)} layers, and there are {layers}")
    full = rotary.count(0) if rotary else layers // (config.count("no_rope_layer_interval", default=4) or 4)
    if not chunk:
        return (sizes.group(layers),)
    return sizes.group(layers - full, chunk), sizes.group(full)

"""Qwen3-Next and Qwen3.5: three layers of gated linear attention to one of full attention."""

from dataclasses import replace

from model_optimizer.core import LayerGroup, Weight
from model_optimizer.system.models import vision
from model_optimizer.system.models.config import Config
from model_optimizer.system.models.decoder import Style, finish
from model_optimizer.system.models.moe import Moe, sparse_layers
from model_optimizer.system.models.parts import Heads, attention, linear, mlp, norm
from model_optimizer.system.models.recurrent import GatedDelta
from model_optimizer.system.models.shape import Shape

MODEL_TYPES = (
    "qwen3_next", "qwen3_5", "qwen3_5_text", "qwen3_5_moe", "qwen3_5_moe_text",
)  # fmt: skip


def shape(config: Config) -> Shape:
    multimodal = config.model_type in ("qwen3_5", "qwen3_5_moe")
    style = Style(prefix="model.language_model" if multimodal else "model")
    layers, sizes = config.layers(), Heads.of(config, head_dim=config.count("head_dim", default=256))
    full, recurrent = _kinds(config, layers)
    moe = (
        _experts(config, layers) if config.model_type == "qwen3_next" or "_moe" in config.model_type else None
    )
    delta = GatedDelta.of(config)
    layer = f"{style.prefix}.{style.layer}"

    weights = _attention(f"{layer}.self_attn", config, sizes, full)
    weights += delta.weights(f"{layer}.linear_attn", recurrent, fused=config.model_type == "qwen3_next")
    for name in style.norms:
        weights += norm(f"{layer}.{name}", sizes.hidden, layers)
    dense = layers - (moe.layers if moe else 0)
    intermediate = config.need("intermediate_size") if dense else config.count("intermediate_size")
    if dense:
        weights += mlp(f"{layer}.mlp", sizes.hidden, intermediate, dense)
    if moe:
        weights += moe.weights(layer, sizes.hidden)
    weights += _further_tokens(config, sizes, moe, intermediate)
    groups: tuple[LayerGroup, ...] = (sizes.group(full), delta.group(config, recurrent))
    made = finish(
        config,
        style,
        sizes,
        layers=layers,
        weights=weights,
        groups=groups,
        moe=moe,
        intermediate=intermediate,
    )
    return replace(made, encoder=vision.qwen3(config)) if multimodal else made


def _kinds(config: Config, layers: int) -> tuple[int, int]:
    """How many layers have full and linear attention."""
    kinds = config.layer_kinds(layers)
    if kinds is None:
        full = layers // (config.count("full_attention_interval", default=4) or 4)
        return full, layers - full
    for kind in kinds.keys() - {"linear_attention", "full_attention"}:
        config.misunderstood(f"layers of type `{kind}`")
    return kinds.get("full_attention", 0), kinds.get("linear_attention", 0)


def _experts(config: Config, layers: int) -> Moe:
    return Moe(
        layers=sparse_layers(config, layers),
        routed=config.need("num_experts"),
        active=config.need("num_experts_per_tok"),
        intermediate=config.need("moe_intermediate_size"),
        shared_count=1,
        shared_intermediate=config.need("shared_expert_intermediate_size"),
        shared="shared_expert",
        shared_gate=True,
    )


def _attention(prefix: str, config: Config, sizes: Heads, layers: int) -> list[Weight]:
    bias = config.flag("attention_bias")
    return attention(prefix, sizes, layers, bias=bias, output_bias=bias, qk_norm="head", gated=True)


def _further_tokens(config: Config, sizes: Heads, moe: Moe | None, intermediate: int) -> list[Weight]:
    """The layers that predict further tokens, where the config says how many; embeddings are shared."""
    count = config.count("mtp_num_hidden_layers")
    if not count:
        return []
    made = linear("mtp.fc", sizes.hidden, 2 * sizes.hidden, 1, role="mtp")
    for name in ("pre_fc_norm_embedding", "pre_fc_norm_hidden", "norm"):
        made += norm(f"mtp.{name}", sizes.hidden, 1)
    made += _attention("mtp.layers.*.self_attn", config, sizes, count)
    for name in ("input_layernorm", "post_attention_layernorm"):
        made += norm(f"mtp.layers.*.{name}", sizes.hidden, count)
    if moe:
        made += replace(moe, layers=count).weights("mtp.layers.*", sizes.hidden)
    else:
        made += mlp("mtp.layers.*.mlp", sizes.hidden, intermediate, count)
    return [replace(weight, role="mtp") for weight in made]

"""IBM Granite 3 (dense and with experts) and Granite 4 (Mamba 2 between attention layers)."""

from model_optimizer.core import LayerGroup
from model_optimizer.system.models.config import Config
from model_optimizer.system.models.decoder import Style, attention_of, decoder, finish
from model_optimizer.system.models.moe import Moe
from model_optimizer.system.models.parts import Heads, linear, norm
from model_optimizer.system.models.recurrent import Mamba2
from model_optimizer.system.models.shape import Shape

MODEL_TYPES = ("granite", "granitemoe", "granitemoehybrid")

# IBM's own words for the two kinds of layers, and those of transformers 5.
RECURRENT, FULL = {"mamba", "linear_attention"}, {"attention", "full_attention"}


def shape(config: Config) -> Shape:
    bias = config.flag("attention_bias")
    if config.model_type == "granite":
        return decoder(
            config, Style(bias=bias, output_bias=bias, mlp_bias=config.flag("mlp_bias"), each_head=True)
        )
    style, layers = Style(bias=bias, output_bias=bias, each_head=True), config.layers()
    if config.model_type == "granitemoe":
        return decoder(config, style, moe=_experts(config, layers, config.need("num_local_experts")))
    return _hybrid(config, style, layers)


def _experts(config: Config, layers: int, routed: int) -> Moe:
    return Moe(
        layers=layers,
        routed=routed,
        active=config.need("num_experts_per_tok"),
        intermediate=config.need("intermediate_size"),
        block="block_sparse_moe",
        router="router.layer",
        experts="",
        names=("input_linear", "output_linear"),
        kind="fused",
    )


def _hybrid(config: Config, style: Style, layers: int) -> Shape:
    sizes = Heads.of(config, each=True)
    kinds = config.layer_kinds(layers) or config.layer_kinds(layers, "layers_block_type") or {"mamba": layers}
    for kind in kinds.keys() - RECURRENT - FULL:
        config.misunderstood(f"layers of type `{kind}`")
    recurrent, full = (
        sum(count for kind, count in kinds.items() if kind in named) for named in (RECURRENT, FULL)
    )
    mamba = _mamba(config, sizes.hidden)
    weights = attention_of(style, "model.layers.*", sizes, full)
    weights += mamba.weights("model.layers.*.mamba", recurrent)
    for name in style.norms:
        weights += norm(f"model.layers.*.{name}", sizes.hidden, layers)
    shared = config.need("shared_intermediate_size")
    weights += linear(
        "model.layers.*.shared_mlp.input_linear", 2 * shared, sizes.hidden, layers, role="mlp", split="rows"
    )
    weights += linear(
        "model.layers.*.shared_mlp.output_linear", sizes.hidden, shared, layers, role="mlp", split="columns"
    )
    routed = config.count("num_local_experts")
    moe = _experts(config, layers, routed) if routed else None
    if moe:
        weights += moe.weights("model.layers.*", sizes.hidden)
    groups: list[LayerGroup] = [sizes.group(full)] if full else []
    groups += [mamba.group(config, recurrent)] if recurrent else []
    return finish(
        config,
        style,
        sizes,
        layers=layers,
        weights=weights,
        moe=moe,
        intermediate=shared,
        groups=tuple(groups),
    )


def _mamba(config: Config, hidden: int) -> Mamba2:
    heads = config.need("mamba_n_heads")
    width = config.count("mamba_expand", default=2) * hidden
    given = config.keys.get("mamba_d_head")
    return Mamba2(
        hidden=hidden, heads=heads, head_dim=given if isinstance(given, int) else width // heads,
        groups=config.count("mamba_n_groups", default=1), state=config.need("mamba_d_state"),
        kernel=config.need("mamba_d_conv"), bias=config.flag("mamba_proj_bias"),
        convolution_bias=config.flag("mamba_conv_bias", default=True),
    )  # fmt: skip

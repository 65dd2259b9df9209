"""OPT: learned positions, norms with bias, plain feed-forward."""

from model_optimizer.system.models.config import Config
from model_optimizer.system.models.decoder import Style, attention_of, finish
from model_optimizer.system.models.parts import Heads, mlp, norm, table
from model_optimizer.system.models.shape import Shape

MODEL_TYPES = ("opt",)

STYLE = Style(
    prefix="model.decoder", attention_output="out_proj", bias=True, output_bias=True, norm_bias=True,
    final_norm="final_layer_norm", tied=True,
)  # fmt: skip


def shape(config: Config) -> Shape:
    layers, sizes, width = config.layers(), Heads.of(config, each=True), config.need("ffn_dim")
    if config.count("word_embed_proj_dim", default=sizes.hidden) != sizes.hidden:
        config.misunderstood("`word_embed_proj_dim` other than `hidden_size`")
    if not config.flag("do_layer_norm_before", default=True):
        config.misunderstood("`do_layer_norm_before`: false")
    if not config.flag("enable_bias", default=True):
        config.misunderstood("`enable_bias`: false")
    layer = "model.decoder.layers.*"
    # Positions are numbered from 2 on, so that the table has two more rows.
    weights = table(
        "model.decoder.embed_positions.weight", config.need("max_position_embeddings") + 2, sizes.hidden
    )
    weights += attention_of(STYLE, layer, sizes, layers)
    weights += mlp(layer, sizes.hidden, width, layers, kind="plain", names=("fc1", "fc2"), bias=True)
    for name in ("self_attn_layer_norm", "final_layer_norm"):
        weights += norm(f"{layer}.{name}", sizes.hidden, layers, bias=True)
    return finish(
        config,
        STYLE,
        sizes,
        layers=layers,
        weights=weights,
        intermediate=width,
        groups=(sizes.group(layers),),
    )

"""Nemotron-H, Nemotron Nano 2 and Nemotron 3: one thing a layer, as a pattern of letters says."""

from collections import Counter

from model_optimizer.core import LayerGroup
from model_optimizer.system.models.config import MOST_LAYERS, Config
from model_optimizer.system.models.decoder import Style, attention_of, finish
from model_optimizer.system.models.moe import Moe
from model_optimizer.system.models.parts import Heads, mlp, norm
from model_optimizer.system.models.recurrent import Mamba2
from model_optimizer.system.models.shape import Shape

MODEL_TYPES = ("nemotron_h",)

LETTERS = {"M": "mamba", "*": "attention", "-": "mlp", "E": "moe"}
OTHER_NAMES = {"linear_attention": "mamba", "full_attention": "attention"}


def shape(config: Config) -> Shape:
    sizes, kinds = Heads.of(config, head_dim=config.count("head_dim", default=128)), _kinds(config)
    layers, bias = sum(kinds.values()), config.flag("attention_bias")
    style = Style(
        prefix="backbone", embedding="embeddings", final_norm="norm_f", attention_name="mixer", bias=bias,
        output_bias=bias,
    )  # fmt: skip
    mamba = Mamba2(
        hidden=sizes.hidden, heads=config.need("mamba_num_heads"), head_dim=config.need("mamba_head_dim"),
        groups=config.need("n_groups", "mamba_n_groups"), state=config.need("ssm_state_size"),
        kernel=config.need("conv_kernel", "mamba_d_conv"), bias=config.flag("mamba_proj_bias"),
        convolution_bias=config.flag("use_conv_bias", default=True),
    )  # fmt: skip
    layer = "backbone.layers.*"
    weights = norm(f"{layer}.norm", sizes.hidden, layers)
    weights += mamba.weights(f"{layer}.mixer", kinds.get("mamba", 0))
    weights += attention_of(style, layer, sizes, kinds.get("attention", 0))
    intermediate = config.need("intermediate_size") if kinds.get("mlp") else config.count("intermediate_size")
    weights += mlp(
        f"{layer}.mixer",
        sizes.hidden,
        intermediate,
        kinds.get("mlp", 0),
        kind="plain",
        bias=config.flag("mlp_bias"),
    )
    moe = _experts(config, kinds["moe"]) if kinds.get("moe") else None
    if moe:
        weights += moe.weights(layer, sizes.hidden)
    groups: list[LayerGroup] = [sizes.group(kinds["attention"])] if kinds.get("attention") else []
    groups += [mamba.group(config, kinds["mamba"])] if kinds.get("mamba") else []
    return finish(
        config, style, sizes, layers=layers, weights=[w for w in weights if w.copies], moe=moe,
        intermediate=intermediate, groups=tuple(groups),
    )  # fmt: skip


def _kinds(config: Config) -> dict[str, int]:
    """Layers by what they do."""
    pattern = config.text("hybrid_override_pattern")
    named = config.names("layers_block_type") or config.names("layer_types")
    if pattern is not None:
        named = [LETTERS.get(letter, letter) for letter in pattern[: MOST_LAYERS + 1]]
    if not named:
        config.missing.append("`hybrid_override_pattern` or `layers_block_type`")
        return {"mamba": 1}
    if len(named) > MOST_LAYERS:
        config.misunderstood(f"more than {MOST_LAYERS} layers")
    kinds = dict(Counter(named))
    kinds = {OTHER_NAMES.get(kind, kind): count for kind, count in kinds.items()}
    for kind in kinds.keys() - set(LETTERS.values()):
        config.misunderstood(f"layers of type `{kind}`")
    return kinds


def _experts(config: Config, layers: int) -> Moe:
    if config.whole("moe_latent_size"):
        config.misunderstood("`moe_latent_size`: experts that work in a smaller space")
    shared = config.count("n_shared_experts", default=1)
    return Moe(
        layers=layers,
        routed=config.need("n_routed_experts", "num_local_experts"),
        active=config.need("num_experts_per_tok"),
        intermediate=config.need("moe_intermediate_size"),
        shared_count=shared,
        shared_intermediate=config.need("moe_shared_expert_intermediate_size") if shared else 0,
        block="mixer",
        kind="plain",
    )

"""DeepSeek V2, V3, R1 and V3.2, Kimi K2, and the GLM models with latent attention (4.7-Flash, 5)."""

from collections.abc import Callable
from dataclasses import replace

from model_optimizer.core import Weight
from model_optimizer.system.models.config import Config
from model_optimizer.system.models.decoder import Style, finish
from model_optimizer.system.models.latent import Latent
from model_optimizer.system.models.moe import Moe, layers_after_dense
from model_optimizer.system.models.parts import Heads, linear, mlp, norm
from model_optimizer.system.models.shape import Shape

MODEL_TYPES = (
    "deepseek_v2", "deepseek_v3", "deepseek_v32", "kimi_k2", "glm4_moe_lite", "glm_moe_dsa",
)  # fmt: skip

# Heads of the selector of sparse attention, where the config leaves them out (defaults of transformers 5.24).
SELECTOR_HEADS = {"deepseek_v32": 64, "glm_moe_dsa": 32}
# First dense layers, where the config leaves them out (defaults of transformers 5.24).
DENSE = {"deepseek_v2": 0, "glm4_moe_lite": 1}

MOST_FURTHER = 64


def shape(config: Config) -> Shape:
    layers = config.layers()
    latent = Latent.of(config, index_heads=SELECTOR_HEADS.get(config.model_type, 0))
    moe = experts(config, layers, dense=DENSE.get(config.model_type, 3))
    intermediate = (
        config.need("intermediate_size") if moe.layers < layers else config.count("intermediate_size")
    )
    weights = latent.weights("model.layers.*.self_attn", layers)
    for name in ("input_layernorm", "post_attention_layernorm"):
        weights += norm(f"model.layers.*.{name}", latent.hidden, layers)
    if moe.layers < layers:
        weights += mlp("model.layers.*.mlp", latent.hidden, intermediate, layers - moe.layers)
    weights += moe.weights("model.layers.*", latent.hidden)
    weights += further_tokens(config, latent, moe)
    heads = Heads(
        hidden=latent.hidden, heads=latent.heads, kv_heads=latent.heads, head_dim=latent.no_rope + latent.rope
    )
    return finish(
        config, Style(), heads, layers=layers, weights=weights, groups=(latent.group(layers),), moe=moe,
        intermediate=intermediate, in_transformers=config.model_type != "kimi_k2",
    )  # fmt: skip


def experts(config: Config, layers: int, *, dense: int) -> Moe:
    intermediate, shared = config.need("moe_intermediate_size"), config.count("n_shared_experts")
    return Moe(
        layers=layers_after_dense(config, layers, default=dense),
        routed=config.need("n_routed_experts"),
        active=config.need("num_experts_per_tok"),
        intermediate=intermediate,
        shared_count=shared,
        shared_intermediate=shared * intermediate,
    )


def further_tokens(
    config: Config, attention: Latent | Heads, moe: Moe, own: Callable[[str], list[Weight]] | None = None
) -> list[Weight]:
    """Layers that predict further tokens: a whole layer each, with an embedding and a head of its own.

    They are numbered after the model's last layer. `own` makes the attention of one layer by its path
    where attention is not latent.
    """
    count, layers = config.count("num_nextn_predict_layers"), config.layers()
    if count > MOST_FURTHER:
        config.misunderstood(f"`num_nextn_predict_layers` is {count}")
        return []
    made: list[Weight] = []
    for number in range(layers, layers + count):
        layer, hidden = f"model.layers.{number}", attention.hidden
        made += own(layer) if own else []
        made += attention.weights(f"{layer}.self_attn", 1) if isinstance(attention, Latent) else []
        made += replace(moe, layers=1).weights(layer, hidden)
        made += linear(f"{layer}.eh_proj", hidden, 2 * hidden, 1, role="mtp")
        for name in ("enorm", "hnorm", "input_layernorm", "post_attention_layernorm", "shared_head.norm"):
            made += norm(f"{layer}.{name}", hidden, 1)
        for name in ("embed_tokens", "shared_head.head"):
            made += linear(f"{layer}.{name}", config.need("vocab_size"), hidden, 1, role="mtp", split="rows")
    return [replace(weight, role="mtp") for weight in made]

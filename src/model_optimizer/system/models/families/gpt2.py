"""GPT-2: learned positions, one matrix for query, key and value, plain feed-forward."""

from model_optimizer.system.models.config import Config
from model_optimizer.system.models.decoder import Style, finish
from model_optimizer.system.models.parts import Heads, fused_attention, mlp, norm, table
from model_optimizer.system.models.shape import Shape

MODEL_TYPES = ("gpt2",)

STYLE = Style(prefix="transformer", embedding="wte", final_norm="ln_f", norm_bias=True, tied=True)


def shape(config: Config) -> Shape:
    hidden, layers, heads = (
        config.need("n_embd", "hidden_size"),
        config.layers("n_layer", "num_hidden_layers"),
        config.need("n_head", "num_attention_heads"),
    )
    places = config.need("n_positions", "max_position_embeddings", "n_ctx")
    if hidden % heads:
        config.contradiction(f"a hidden size of {hidden} with {heads} heads")
    sizes = Heads(hidden=hidden, heads=heads, kv_heads=heads, head_dim=hidden // heads)
    width = config.count("n_inner") or 4 * hidden
    weights = table("transformer.wpe.weight", places, hidden)
    weights += fused_attention(
        "transformer.h.*.attn", sizes, layers, name="c_attn", output="c_proj", bias=True, output_bias=True
    )
    weights += mlp(
        "transformer.h.*.mlp", hidden, width, layers, kind="plain", names=("c_fc", "c_proj"), bias=True
    )
    for name in ("ln_1", "ln_2"):
        weights += norm(f"transformer.h.*.{name}", hidden, layers, bias=True)
    config.keys.setdefault("max_position_embeddings", places)
    return finish(
        config,
        STYLE,
        sizes,
        layers=layers,
        weights=weights,
        intermediate=width,
        groups=(sizes.group(layers),),
    )

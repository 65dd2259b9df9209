"""GLM-4 in its three forms: the ChatGLM code of the first release, `glm` and `glm4` of transformers."""

from dataclasses import replace

from model_optimizer.system.models.config import Config
from model_optimizer.system.models.decoder import Style, decoder, is_tied
from model_optimizer.system.models.parts import Heads, fused_attention, head, mlp, norm, table
from model_optimizer.system.models.shape import Shape, kind_of

MODEL_TYPES = ("glm", "glm4", "chatglm")

NORMS = (
    "input_layernorm", "post_attention_layernorm", "post_self_attn_layernorm", "post_mlp_layernorm",
)  # fmt: skip


def shape(config: Config) -> Shape:
    if config.model_type == "chatglm":
        return _chatglm(config)
    config.fill(head_dim=128)
    style = Style(mlp="fused", bias=config.flag("attention_bias"))
    return decoder(config, replace(style, norms=NORMS) if config.model_type == "glm4" else style)


def _chatglm(config: Config) -> Shape:
    hidden, heads, layers = (
        config.need("hidden_size"),
        config.need("num_attention_heads"),
        config.layers("num_layers"),
    )
    intermediate = config.need("ffn_hidden_size")
    vocab = config.need("padded_vocab_size", "vocab_size")
    shared = config.flag("multi_query_attention", default="multi_query_group_num" in config.keys)
    kv_heads = config.need("multi_query_group_num") if shared else heads
    sizes = Heads(hidden=hidden, heads=heads, kv_heads=kv_heads, head_dim=config.need("kv_channels"))
    bias = config.flag("add_bias_linear")
    layer = "transformer.encoder.layers.*"
    weights = fused_attention(
        f"{layer}.self_attention", sizes, layers, name="query_key_value", output="dense",
        bias=config.flag("add_qkv_bias", default=True) or bias, output_bias=bias,
    )  # fmt: skip
    weights += mlp(
        f"{layer}.mlp",
        hidden,
        intermediate,
        layers,
        kind="fused",
        names=("dense_h_to_4h", "dense_4h_to_h"),
        bias=bias,
    )
    weights += norm(f"{layer}.input_layernorm", hidden, layers) + norm(
        f"{layer}.post_attention_layernorm", hidden, layers
    )
    weights += norm("transformer.encoder.final_layernorm", hidden, 1)
    weights += table("transformer.embedding.word_embeddings.weight", vocab, hidden)
    tied = is_tied(config, False)
    if not tied:
        weights += head("transformer.output_layer", vocab, hidden)
    return Shape(
        layers=layers,
        hidden_size=hidden,
        intermediate_size=intermediate,
        vocab_size=vocab,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=sizes.head_dim,
        attention=kind_of(heads, kv_heads),
        groups=(sizes.group(layers),),
        weights=tuple(weights),
        tied=tied,
        max_position=config.whole("seq_length", "max_position_embeddings"),
        in_transformers=False,
    )

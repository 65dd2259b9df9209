"""The decoder that most language models are: attention and feed-forward layers, all of one size.

A family says in a Style how its layers differ from Llama's; what does not fit puts its parts together itself.
"""

from dataclasses import dataclass
from typing import Literal

from model_optimizer.core import AttentionKind, LayerGroup, Weight

from .config import Config
from .moe import Moe
from .parts import Heads, Mlp, attention, fused_attention, head, linear, mlp, norm, table, vector
from .shape import Shape, kind_of

Windows = tuple[tuple[int | None, int], ...]
"""(window, how many layers have it) for each kind of layer; a window of None sees everything."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Style:
    """How a decoder differs from Llama's. `tied` is the architecture's default for tied embeddings.

    `each_head`: where `num_key_value_heads` is missing, every head has keys and values of its own.
    """

    prefix: str = "model"
    layer: str = "layers.*"
    embedding: str = "embed_tokens"
    head: str = "lm_head"
    attention_name: str = "self_attn"
    attention_output: str = "o_proj"
    mlp_name: str = "mlp"
    final_norm: str = "norm"
    norms: tuple[str, ...] = ("input_layernorm", "post_attention_layernorm")
    norm_bias: bool = False
    fused_qkv: bool = False
    bias: bool = False
    output_bias: bool = False
    head_bias: bool = False
    qk_norm: Literal["none", "head", "all"] = "none"
    mlp: Mlp = "gated"
    mlp_names: tuple[str, ...] = ()
    mlp_bias: bool = False
    sinks: bool = False
    tied: bool = False
    each_head: bool = False


def decoder(
    config: Config, style: Style, *, moe: Moe | None = None, windows: Windows = (),
    encoder: tuple[Weight, ...] | None = (), in_transformers: bool = True,
) -> Shape:  # fmt: skip
    """The shape of a decoder. Without `windows` every layer sees everything."""
    sizes, layers = Heads.of(config, each=style.each_head), config.layers()
    sparse = moe.layers if moe else 0
    intermediate = config.need("intermediate_size") if sparse < layers else config.count("intermediate_size")
    weights = _layers(style, sizes, layers, sparse, intermediate)
    if moe:
        weights += moe.weights(f"{style.prefix}.{style.layer}", sizes.hidden)
    return finish(
        config,
        style,
        sizes,
        layers=layers,
        weights=weights,
        moe=moe,
        intermediate=intermediate,
        encoder=encoder,
        groups=tuple(sizes.group(count, window) for window, count in windows or ((None, layers),) if count),
        in_transformers=in_transformers,
    )


def _layers(style: Style, sizes: Heads, layers: int, sparse: int, intermediate: int) -> list[Weight]:
    layer = f"{style.prefix}.{style.layer}"
    weights = attention_of(style, layer, sizes, layers)
    for name in style.norms:
        weights += norm(f"{layer}.{name}", sizes.hidden, layers, bias=style.norm_bias)
    if sparse < layers:
        weights += mlp(
            f"{layer}.{style.mlp_name}",
            sizes.hidden,
            intermediate,
            layers - sparse,
            kind=style.mlp,
            bias=style.mlp_bias,
            names=style.mlp_names,
        )
    return weights


def attention_of(style: Style, layer: str, sizes: Heads, layers: int) -> list[Weight]:
    """The attention of `layers` layers in this style."""
    prefix = f"{layer}.{style.attention_name}"
    if style.fused_qkv:
        return fused_attention(
            prefix,
            sizes,
            layers,
            bias=style.bias,
            output_bias=style.output_bias,
            output=style.attention_output,
        )
    made = attention(
        prefix, sizes, layers, bias=style.bias, output_bias=style.output_bias, qk_norm=style.qk_norm,
        output=style.attention_output,
    )  # fmt: skip
    return (
        made + vector(f"{prefix}.sinks", sizes.heads, layers, role="attention", split="rows")
        if style.sinks
        else made
    )


def finish(
    config: Config,
    style: Style,
    sizes: Heads,
    *,
    layers: int,
    weights: list[Weight],
    groups: tuple[LayerGroup, ...],
    moe: Moe | None = None,
    intermediate: int = 0,
    encoder: tuple[Weight, ...] | None = (),
    in_transformers: bool = True,
) -> Shape:
    """Put embedding, last norm and head around the layers' weights."""
    vocab, tied = config.need("vocab_size"), is_tied(config, style.tied)
    shared = kind_of(sizes.heads, sizes.kv_heads)
    kinds: list[AttentionKind] = [group.kind for group in groups if group.kind != "linear"]
    around = table(f"{style.prefix}.{style.embedding}.weight", vocab, sizes.hidden)
    around += norm(f"{style.prefix}.{style.final_norm}", sizes.hidden, 1, bias=style.norm_bias)
    around += outputs(config, style.head, vocab, sizes.hidden, tied=tied, bias=style.head_bias)
    return Shape(
        layers=layers,
        hidden_size=sizes.hidden,
        intermediate_size=intermediate or (moe.intermediate if moe else 0),
        vocab_size=vocab,
        heads=sizes.heads,
        kv_heads=sizes.kv_heads,
        head_dim=sizes.head_dim,
        attention=kinds[0] if kinds else shared,
        groups=groups,
        weights=(*weights, *around),
        encoder=encoder,
        experts=moe.noun if moe and moe.layers else None,
        tied=tied,
        max_position=config.whole("max_position_embeddings"),
        in_transformers=in_transformers,
    )


def outputs(
    config: Config, name: str, vocab: int, hidden: int, *, tied: bool, bias: bool = False
) -> list[Weight]:
    """The head that `architectures` names: of a language model, a classifier, or none at all."""
    architecture = config.architecture
    if architecture.endswith("ForSequenceClassification"):
        return linear("score", label_count(config), hidden, 1, role="classifier")
    if not architecture.endswith(("ForCausalLM", "LMHeadModel", "ForConditionalGeneration")):
        return []
    return [] if tied else head(name, vocab, hidden, bias=bias)


def is_tied(config: Config, default: bool) -> bool:
    """The outer word on tied embeddings counts, then the inner one, then the architecture's default."""
    for keys in (config.outer, config.keys):
        found = keys.get("tie_word_embeddings")
        if isinstance(found, bool):
            return found
        if found is not None:
            config.misunderstood("`tie_word_embeddings` is not true or false")
    return default


def label_count(config: Config) -> int:
    """How many labels a classifier has: `id2label`, `num_labels`, else two."""
    labels = config.keys.get("id2label")
    if isinstance(labels, dict) and labels:
        return len(labels)
    return config.count("num_labels", default=2) or 2


def alternating(config: Config, layers: int, window: int | None, *, pattern: int | None) -> Windows:
    """Windows by `layer_types`, else every `pattern`th layer sees everything and the others slide."""
    if window is None:
        return ((None, layers),)
    kinds = config.layer_kinds(layers)
    if kinds is None:
        full = layers // pattern if pattern else 0
        kinds = {"sliding_attention": layers - full, "full_attention": full}
    for kind in kinds.keys() - {"sliding_attention", "full_attention"}:
        config.misunderstood(f"layers of type `{kind}`")
    return ((window, kinds.get("sliding_attention", 0)), (None, kinds.get("full_attention", 0)))

"""MPNet: a BERT with one table of relative positions."""

from model_optimizer.core import Weight
from model_optimizer.system.models.config import Config
from model_optimizer.system.models.encoder import encoder, encoder_layers
from model_optimizer.system.models.parts import linear, norm, table, vector
from model_optimizer.system.models.shape import Shape

MODEL_TYPES = ("mpnet",)

LAYER_NAMES = (
    "attention.attn.q", "attention.attn.k", "attention.attn.v", "attention.attn.o", "intermediate.dense",
    "output.dense",
)  # fmt: skip


def shape(config: Config) -> Shape:
    hidden, layers, width = config.need("hidden_size"), config.layers(), config.need("intermediate_size")
    vocab, places, heads = (
        config.need("vocab_size"),
        config.need("max_position_embeddings"),
        config.need("num_attention_heads"),
    )
    masked = config.architecture.endswith("ForMaskedLM")
    if not masked and not config.architecture.endswith("Model"):
        config.misunderstood(f"what `{config.architecture}` puts on top")
    root = "mpnet." if masked else ""
    weights = table(f"{root}embeddings.word_embeddings.weight", vocab, hidden)
    weights += table(f"{root}embeddings.position_embeddings.weight", places, hidden)
    weights += norm(f"{root}embeddings.LayerNorm", hidden, 1, bias=True)
    weights += encoder_layers(
        f"{root}encoder.layer.*", hidden, width, layers, names=LAYER_NAMES,
        norms=("attention.LayerNorm", "output.LayerNorm"),
    )  # fmt: skip
    buckets = config.count("relative_attention_num_buckets", default=32)
    weights += [
        Weight(name=f"{root}encoder.relative_attention_bias.weight", shape=(buckets, heads), role="attention")
    ]
    if masked:
        weights += linear("lm_head.dense", hidden, hidden, 1, role="head", bias=True) + vector(
            "lm_head.bias", vocab, 1, role="head"
        )
        weights += vector("lm_head.layer_norm.weight", hidden, 1, role="head") + vector(
            "lm_head.layer_norm.bias", hidden, 1, role="head"
        )
    else:
        weights += linear("pooler.dense", hidden, hidden, 1, role="pooler", bias=True)
    return encoder(
        config,
        weights,
        hidden=hidden,
        layers=layers,
        width=width,
        heads=heads,
        vocab=vocab,
        max_position=places - 2,
    )

"""DistilBERT."""

from model_optimizer.core import Weight
from model_optimizer.system.models.config import Config
from model_optimizer.system.models.decoder import label_count
from model_optimizer.system.models.encoder import encoder, encoder_layers
from model_optimizer.system.models.parts import linear, norm, table, vector
from model_optimizer.system.models.shape import Shape

MODEL_TYPES = ("distilbert",)

LAYER_NAMES = (
    "attention.q_lin", "attention.k_lin", "attention.v_lin", "attention.out_lin", "ffn.lin1", "ffn.lin2",
)  # fmt: skip


def shape(config: Config) -> Shape:
    hidden, layers, width = (
        config.need("dim", "hidden_size"),
        config.layers("n_layers", "num_hidden_layers"),
        config.need("hidden_dim"),
    )
    vocab, places = config.need("vocab_size"), config.need("max_position_embeddings")
    root = "" if config.architecture.endswith("Model") else "distilbert."
    weights = table(f"{root}embeddings.word_embeddings.weight", vocab, hidden)
    weights += table(f"{root}embeddings.position_embeddings.weight", places, hidden)
    weights += norm(f"{root}embeddings.LayerNorm", hidden, 1, bias=True)
    weights += encoder_layers(
        f"{root}transformer.layer.*",
        hidden,
        width,
        layers,
        names=LAYER_NAMES,
        norms=("sa_layer_norm", "output_layer_norm"),
    )
    weights += _on_top(config, hidden, vocab)
    return encoder(
        config,
        weights,
        hidden=hidden,
        layers=layers,
        width=width,
        heads=config.need("n_heads", "num_attention_heads"),
        vocab=vocab,
        max_position=places,
    )


def _on_top(config: Config, hidden: int, vocab: int) -> list[Weight]:
    if config.architecture.endswith("ForSequenceClassification"):
        made = linear("pre_classifier", hidden, hidden, 1, role="classifier", bias=True)
        return made + linear("classifier", label_count(config), hidden, 1, role="classifier", bias=True)
    if config.architecture.endswith("ForMaskedLM"):
        made = linear("vocab_transform", hidden, hidden, 1, role="head", bias=True)
        made += vector("vocab_layer_norm.weight", hidden, 1, role="head") + vector(
            "vocab_layer_norm.bias", hidden, 1, role="head"
        )
        return made + vector("vocab_projector.bias", vocab, 1, role="head")
    return []

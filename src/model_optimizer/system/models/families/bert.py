"""BERT, RoBERTa and XLM-RoBERTa: encoders for embeddings and for scoring pairs of texts."""

from model_optimizer.core import Weight
from model_optimizer.system.models.config import Config
from model_optimizer.system.models.decoder import label_count
from model_optimizer.system.models.encoder import encoder, encoder_layers
from model_optimizer.system.models.parts import linear, norm, table, vector
from model_optimizer.system.models.shape import Shape

MODEL_TYPES = ("bert", "roberta", "xlm-roberta", "camembert")

LAYER_NAMES = (
    "attention.self.query", "attention.self.key", "attention.self.value", "attention.output.dense",
    "intermediate.dense", "output.dense",
)  # fmt: skip
NORM_NAMES = ("attention.output.LayerNorm", "output.LayerNorm")


def shape(config: Config) -> Shape:
    hidden, layers, width = config.need("hidden_size"), config.layers(), config.need("intermediate_size")
    vocab, places = config.need("vocab_size"), config.need("max_position_embeddings")
    bare = config.architecture.endswith("Model")
    root = "" if bare else "bert." if config.model_type == "bert" else "roberta."
    weights = table(f"{root}embeddings.word_embeddings.weight", vocab, hidden)
    weights += table(f"{root}embeddings.position_embeddings.weight", places, hidden)
    weights += table(
        f"{root}embeddings.token_type_embeddings.weight", config.count("type_vocab_size", default=2), hidden
    )
    weights += norm(f"{root}embeddings.LayerNorm", hidden, 1, bias=True)
    weights += encoder_layers(
        f"{root}encoder.layer.*", hidden, width, layers, names=LAYER_NAMES, norms=NORM_NAMES
    )
    weights += _on_top(config, root, hidden, vocab)
    # RoBERTa numbers positions from 2 on, so that two rows of its table are never used.
    usable = places if config.model_type == "bert" else places - 2
    return encoder(
        config, weights, hidden=hidden, layers=layers, width=width, heads=config.need("num_attention_heads"),
        vocab=vocab, max_position=usable,
    )  # fmt: skip


def _on_top(config: Config, root: str, hidden: int, vocab: int) -> list[Weight]:
    """Pooler and head, which differ between BERT and RoBERTa and by what the model is for."""
    architecture, bert = config.architecture, config.model_type == "bert"
    pooler = linear(f"{root}pooler.dense", hidden, hidden, 1, role="pooler", bias=True)
    if architecture.endswith("ForSequenceClassification"):
        labels = label_count(config)
        if bert:
            return pooler + linear("classifier", labels, hidden, 1, role="classifier", bias=True)
        made = linear("classifier.dense", hidden, hidden, 1, role="classifier", bias=True)
        return made + linear("classifier.out_proj", labels, hidden, 1, role="classifier", bias=True)
    if architecture.endswith("ForMaskedLM"):
        top = "cls.predictions.transform" if bert else "lm_head"
        made = linear(f"{top}.dense", hidden, hidden, 1, role="head", bias=True)
        normed = "LayerNorm" if bert else "layer_norm"
        made += vector(f"{top}.{normed}.weight", hidden, 1, role="head")
        made += vector(f"{top}.{normed}.bias", hidden, 1, role="head")
        return made + vector("cls.predictions.bias" if bert else "lm_head.bias", vocab, 1, role="head")
    return pooler

"""ModernBERT: one layer in three sees everything, the others a window."""

from model_optimizer.core import Weight
from model_optimizer.system.models.config import Config
from model_optimizer.system.models.decoder import label_count
from model_optimizer.system.models.encoder import encoder
from model_optimizer.system.models.parts import linear, norm, table, vector
from model_optimizer.system.models.shape import Shape

MODEL_TYPES = ("modernbert",)


def shape(config: Config) -> Shape:
    hidden, layers, width = config.need("hidden_size"), config.layers(), config.need("intermediate_size")
    vocab, heads = config.need("vocab_size"), config.need("num_attention_heads")
    bias, normed = config.flag("attention_bias"), config.flag("norm_bias")
    root = "" if config.architecture.endswith("Model") else "model."
    layer = f"{root}layers.*"
    weights = table(f"{root}embeddings.tok_embeddings.weight", vocab, hidden)
    weights += norm(f"{root}embeddings.norm", hidden, 1, bias=normed)
    weights += linear(
        f"{layer}.attn.Wqkv", 3 * hidden, hidden, layers, role="attention", split="rows", bias=bias
    )
    weights += linear(
        f"{layer}.attn.Wo", hidden, hidden, layers, role="attention", split="columns", bias=bias
    )
    wide = config.flag("mlp_bias")
    weights += linear(f"{layer}.mlp.Wi", 2 * width, hidden, layers, role="mlp", split="rows", bias=wide)
    weights += linear(f"{layer}.mlp.Wo", hidden, width, layers, role="mlp", split="columns", bias=wide)
    # The first layer has no norm before attention: the embedding's is right before it.
    weights += norm(f"{layer}.attn_norm", hidden, layers - 1, bias=normed) + norm(
        f"{layer}.mlp_norm", hidden, layers, bias=normed
    )
    weights += norm(f"{root}final_norm", hidden, 1, bias=normed) + _on_top(
        config, hidden, vocab, normed=normed
    )
    every, window = (
        config.count("global_attn_every_n_layers", default=3),
        config.whole("local_attention", default=128),
    )
    full = sum(1 for number in range(layers) if not every or number % every == 0)
    return encoder(
        config, weights, hidden=hidden, layers=layers, width=width, heads=heads, vocab=vocab,
        max_position=config.whole("max_position_embeddings"),
        windows=((window, layers - full), (None, full)) if layers > full else ((None, layers),),
    )  # fmt: skip


def _on_top(config: Config, hidden: int, vocab: int, *, normed: bool) -> list[Weight]:
    if not config.architecture.endswith(("ForMaskedLM", "ForSequenceClassification")):
        return []
    masked = config.architecture.endswith("ForMaskedLM")
    role = "head" if masked else "classifier"
    made = linear("head.dense", hidden, hidden, 1, role=role, bias=config.flag("classifier_bias"))
    made += vector("head.norm.weight", hidden, 1, role=role) + (
        vector("head.norm.bias", hidden, 1, role=role) if normed else []
    )
    if masked:
        return made + (
            vector("decoder.bias", vocab, 1, role="head") if config.flag("decoder_bias", default=True) else []
        )
    return made + linear("classifier", label_count(config), hidden, 1, role="classifier", bias=True)

"""Vision Transformer for classifying images."""

from model_optimizer.core import Weight
from model_optimizer.system.models.config import Config
from model_optimizer.system.models.decoder import label_count
from model_optimizer.system.models.encoder import encoder, encoder_layers
from model_optimizer.system.models.parts import linear, norm, vector
from model_optimizer.system.models.shape import Shape

MODEL_TYPES = ("vit", "deit")

LAYER_NAMES = (
    "attention.attention.query",
    "attention.attention.key",
    "attention.attention.value",
    "attention.output.dense",
    "intermediate.dense",
    "output.dense",
)


def shape(config: Config) -> Shape:
    hidden, layers, width, patch = (
        config.need("hidden_size"),
        config.layers(),
        config.need("intermediate_size"),
        config.need("patch_size"),
    )
    channels, extra = config.count("num_channels", default=3), 2 if config.model_type == "deit" else 1
    if not config.flag("qkv_bias", default=True):
        config.misunderstood("`qkv_bias`: false")
    classes = config.architecture.endswith("ForImageClassification")
    root = f"{config.model_type}." if classes else ""
    places = (config.need("image_size") // patch) ** 2 + extra
    tokens = ("cls_token", "distillation_token")[:extra]
    weights = [Weight(name=f"{root}embeddings.{t}", shape=(1, 1, hidden), role="embedding") for t in tokens]
    weights += [
        Weight(name=f"{root}embeddings.position_embeddings", shape=(1, places, hidden), role="embedding"),
        Weight(
            name=f"{root}embeddings.patch_embeddings.projection.weight",
            shape=(hidden, channels, patch, patch),
            role="embedding",
        ),
    ]
    weights += vector(f"{root}embeddings.patch_embeddings.projection.bias", hidden, 1, role="embedding")
    weights += encoder_layers(
        f"{root}encoder.layer.*",
        hidden,
        width,
        layers,
        names=LAYER_NAMES,
        norms=("layernorm_before", "layernorm_after"),
    )
    weights += norm(f"{root}layernorm", hidden, 1, bias=True)
    if classes:
        weights += linear("classifier", label_count(config), hidden, 1, role="classifier", bias=True)
    else:
        weights += linear("pooler.dense", hidden, hidden, 1, role="pooler", bias=True)
    return encoder(
        config,
        weights,
        hidden=hidden,
        layers=layers,
        width=width,
        heads=config.need("num_attention_heads"),
        vocab=0,
        max_position=places,
    )

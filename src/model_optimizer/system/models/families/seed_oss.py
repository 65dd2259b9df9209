"""Seed-OSS."""

from model_optimizer.system.models.config import Config
from model_optimizer.system.models.decoder import Style, decoder
from model_optimizer.system.models.shape import Shape

MODEL_TYPES = ("seed_oss",)


def shape(config: Config) -> Shape:
    config.fill(head_dim=128)
    return decoder(
        config,
        Style(
            bias=config.flag("attention_bias", default=True),
            output_bias=config.flag("attention_out_bias"),
            mlp_bias=config.flag("mlp_bias"),
        ),
    )

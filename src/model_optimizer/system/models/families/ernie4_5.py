"""ERNIE 4.5, the dense text models."""

from model_optimizer.system.models.config import Config
from model_optimizer.system.models.decoder import Style, decoder
from model_optimizer.system.models.shape import Shape

MODEL_TYPES = ("ernie4_5",)


def shape(config: Config) -> Shape:
    config.fill(head_dim=128)
    bias = config.flag("use_bias")
    return decoder(config, Style(bias=bias, output_bias=bias, mlp_bias=bias, tied=True))

"""Llama 2 and 3, CodeLlama, TinyLlama, Yi and all who took the architecture as it is."""

from model_optimizer.system.models.config import Config
from model_optimizer.system.models.decoder import Style, decoder
from model_optimizer.system.models.shape import Shape

MODEL_TYPES = ("llama",)


def shape(config: Config) -> Shape:
    bias = config.flag("attention_bias")
    return decoder(
        config, Style(bias=bias, output_bias=bias, mlp_bias=config.flag("mlp_bias"), each_head=True)
    )

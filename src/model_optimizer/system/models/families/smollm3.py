"""SmolLM3: Llama's layers, some of them without rotary embedding, which adds no weights."""

from model_optimizer.system.models.config import Config
from model_optimizer.system.models.decoder import Style, decoder
from model_optimizer.system.models.shape import Shape

MODEL_TYPES = ("smollm3",)


def shape(config: Config) -> Shape:
    bias = config.flag("attention_bias")
    if config.flag("use_sliding_window"):
        config.misunderstood("`use_sliding_window`: true")
    return decoder(config, Style(bias=bias, output_bias=bias, mlp_bias=config.flag("mlp_bias"), tied=True))

"""Phi-3, Phi-3.5, Phi-4 and Phi-4-mini."""

from model_optimizer.system.models.config import Config
from model_optimizer.system.models.decoder import Style, decoder
from model_optimizer.system.models.shape import Shape

MODEL_TYPES = ("phi3",)


def shape(config: Config) -> Shape:
    layers = config.layers()
    return decoder(
        config,
        Style(fused_qkv=True, mlp="fused", each_head=True),
        windows=((config.whole("sliding_window"), layers),),
    )

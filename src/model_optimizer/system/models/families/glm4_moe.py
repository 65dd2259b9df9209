"""GLM-4.5, 4.6 and 4.7: grouped attention, experts after the first dense layers."""

from dataclasses import replace

from model_optimizer.system.models.config import Config
from model_optimizer.system.models.decoder import Style, attention_of, decoder
from model_optimizer.system.models.families.deepseek import experts, further_tokens
from model_optimizer.system.models.parts import Heads
from model_optimizer.system.models.shape import Shape

MODEL_TYPES = ("glm4_moe",)


def shape(config: Config) -> Shape:
    style = Style(
        bias=config.flag("attention_bias"), qk_norm="head" if config.flag("use_qk_norm") else "none"
    )
    moe = experts(config, config.layers(), dense=1)
    made = decoder(config, style, moe=moe)
    sizes = Heads.of(config)
    further = further_tokens(config, sizes, moe, lambda layer: attention_of(style, layer, sizes, 1))
    return replace(made, weights=(*made.weights, *further))

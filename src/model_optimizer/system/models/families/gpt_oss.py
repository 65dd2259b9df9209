"""gpt-oss: every other layer slides, attention has sinks, experts have biases."""

from model_optimizer.system.models.config import Config
from model_optimizer.system.models.decoder import Style, alternating, decoder
from model_optimizer.system.models.moe import Moe
from model_optimizer.system.models.shape import Shape

MODEL_TYPES = ("gpt_oss",)


def shape(config: Config) -> Shape:
    config.fill(head_dim=64)
    layers, bias = config.layers(), config.flag("attention_bias", default=True)
    moe = Moe(
        layers=layers, routed=config.need("num_local_experts"),
        active=config.need("num_experts_per_tok", "experts_per_token"),
        intermediate=config.need("intermediate_size"), experts="experts", kind="fused", router="router",
        router_bias=True, bias=True,
    )  # fmt: skip
    window = config.whole("sliding_window", default=128, condensed=128)
    style = Style(bias=bias, output_bias=bias, sinks=True)
    return decoder(config, style, moe=moe, windows=alternating(config, layers, window, pattern=2))

"""StarCoder 2."""

from model_optimizer.system.models.config import Config
from model_optimizer.system.models.decoder import Style, decoder
from model_optimizer.system.models.shape import Shape

MODEL_TYPES = ("starcoder2",)


def shape(config: Config) -> Shape:
    bias, layers = config.flag("use_bias", default=True), config.layers()
    style = Style(
        bias=bias,
        output_bias=bias,
        mlp="plain",
        mlp_names=("c_fc", "c_proj"),
        mlp_bias=bias,
        norm_bias=True,
        tied=True,
    )
    return decoder(config, style, windows=((config.whole("sliding_window"), layers),))

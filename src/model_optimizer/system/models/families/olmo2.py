"""OLMo 2 and 3: norms after attention and feed-forward, and on whole queries and keys."""

from model_optimizer.system.models.config import Config
from model_optimizer.system.models.decoder import Style, alternating, decoder
from model_optimizer.system.models.shape import Shape

MODEL_TYPES = ("olmo2", "olmo3")


def shape(config: Config) -> Shape:
    bias, layers = config.flag("attention_bias"), config.layers()
    style = Style(
        bias=bias,
        output_bias=bias,
        qk_norm="all",
        each_head=True,
        norms=("post_attention_layernorm", "post_feedforward_layernorm"),
    )
    window = config.whole("sliding_window", default=4096) if config.model_type == "olmo3" else None
    return decoder(config, style, windows=alternating(config, layers, window, pattern=4))

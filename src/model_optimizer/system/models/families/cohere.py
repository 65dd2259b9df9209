"""Command R (`cohere`) and Command R7B and A (`cohere2`): attention and feed-forward share one norm."""

from model_optimizer.system.models.config import Config
from model_optimizer.system.models.decoder import Style, alternating, decoder
from model_optimizer.system.models.shape import Shape

MODEL_TYPES = ("cohere", "cohere2")


def shape(config: Config) -> Shape:
    bias, layers = config.flag("attention_bias"), config.layers()
    if config.flag("use_qk_norm"):
        config.misunderstood("`use_qk_norm`: true")
    style = Style(bias=bias, output_bias=bias, norms=("input_layernorm",), tied=True, each_head=True)
    if config.model_type == "cohere":
        return decoder(config, style)
    pattern = config.count("sliding_window_pattern", "_sliding_window_pattern", default=4)
    window = config.whole("sliding_window", default=4096)
    return decoder(config, style, windows=alternating(config, layers, window, pattern=pattern))

"""Qwen 1.5, 2 and 2.5, and Qwen2-VL and Qwen2.5-VL."""

from dataclasses import replace

from model_optimizer.system.models import vision
from model_optimizer.system.models.config import Config
from model_optimizer.system.models.decoder import Style, Windows, decoder
from model_optimizer.system.models.shape import Shape

MODEL_TYPES = ("qwen2", "qwen2_vl", "qwen2_5_vl")


def shape(config: Config) -> Shape:
    made = decoder(config, Style(bias=True), windows=windows(config))
    if config.model_type == "qwen2_5_vl":
        return replace(made, encoder=vision.qwen2_5(config))
    if config.model_type == "qwen2_vl":
        return replace(made, encoder=vision.qwen2(config))
    return made


def windows(config: Config) -> Windows:
    """Qwen's `sliding_window` counts only with `use_sliding_window`, from layer `max_window_layers` on."""
    layers = config.layers()
    window = config.whole("sliding_window", default=4096) if config.flag("use_sliding_window") else None
    if window is None:
        return ((None, layers),)
    full = min(layers, config.count("max_window_layers", default=28))
    return ((None, full), (window, layers - full))

"""Mistral 7B and Nemo, Ministral 3, and Mistral 3 with its Pixtral encoder."""

from dataclasses import replace

from model_optimizer.system.models import vision
from model_optimizer.system.models.config import Config
from model_optimizer.system.models.decoder import Style, decoder
from model_optimizer.system.models.shape import Shape

MODEL_TYPES = ("mistral", "ministral3", "mistral3")


def shape(config: Config) -> Shape:
    inner = config.text("model_type") if config.model_type == "mistral3" else config.model_type
    if inner not in ("mistral", "ministral3", "mistral3"):
        config.misunderstood(f"a text model of type `{inner}`")
    layers = config.layers()
    window = config.whole("sliding_window", default=4096 if inner == "mistral" else None)
    made = decoder(config, _style(config), windows=((window, layers),))
    if config.model_type != "mistral3":
        return made
    return replace(made, encoder=vision.pixtral(config, made.hidden_size))


def _style(config: Config) -> Style:
    if config.model_type == "mistral3":
        return Style(prefix="language_model.model", head="language_model.lm_head")
    return Style()

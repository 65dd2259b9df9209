"""Qwen3, dense and with experts, and Qwen3-VL."""

from dataclasses import replace

from model_optimizer.system.models import vision
from model_optimizer.system.models.config import Config
from model_optimizer.system.models.decoder import Style, decoder
from model_optimizer.system.models.families.qwen2 import windows
from model_optimizer.system.models.moe import Moe, sparse_layers
from model_optimizer.system.models.shape import Shape

MODEL_TYPES = ("qwen3", "qwen3_moe", "qwen3_vl", "qwen3_vl_moe")


def shape(config: Config) -> Shape:
    if not config.model_type.endswith("_moe"):
        config.fill(head_dim=128)
    multimodal = "_vl" in config.model_type
    bias = config.flag("attention_bias")
    style = Style(
        qk_norm="head", bias=bias, output_bias=bias, prefix="model.language_model" if multimodal else "model"
    )
    moe = experts(config) if config.model_type.endswith("_moe") else None
    made = decoder(config, style, moe=moe, windows=windows(config))
    return replace(made, encoder=vision.qwen3(config)) if multimodal else made


def experts(config: Config) -> Moe:
    return Moe(
        layers=sparse_layers(config, config.layers()),
        routed=config.need("num_experts", "num_local_experts"),
        active=config.need("num_experts_per_tok"),
        intermediate=config.need("moe_intermediate_size"),
    )

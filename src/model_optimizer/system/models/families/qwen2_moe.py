"""Qwen1.5-MoE and Qwen2-57B-A14B: routed experts beside a gated shared one."""

from model_optimizer.system.models.config import Config
from model_optimizer.system.models.decoder import Style, decoder
from model_optimizer.system.models.families.qwen2 import windows
from model_optimizer.system.models.moe import Moe, sparse_layers
from model_optimizer.system.models.shape import Shape

MODEL_TYPES = ("qwen2_moe",)


def shape(config: Config) -> Shape:
    moe = Moe(
        layers=sparse_layers(config, config.layers()),
        routed=config.need("num_experts"),
        active=config.need("num_experts_per_tok"),
        intermediate=config.need("moe_intermediate_size"),
        shared_count=1,
        shared_intermediate=config.need("shared_expert_intermediate_size"),
        shared="shared_expert",
        shared_gate=True,
    )
    return decoder(
        config, Style(bias=config.flag("qkv_bias", default=True)), moe=moe, windows=windows(config)
    )

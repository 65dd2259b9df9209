"""MiniMax M2: experts in every layer, norms on whole queries and keys."""

from model_optimizer.system.models.config import Config
from model_optimizer.system.models.decoder import Style, decoder
from model_optimizer.system.models.moe import Moe
from model_optimizer.system.models.shape import Shape

MODEL_TYPES = ("minimax_m2",)


def shape(config: Config) -> Shape:
    config.fill(head_dim=128)
    layers = config.layers()
    moe = Moe(
        layers=layers, routed=config.need("num_local_experts"), active=config.need("num_experts_per_tok"),
        intermediate=config.need("intermediate_size"), block="block_sparse_moe", names=("w1", "w3", "w2"),
    )  # fmt: skip
    if config.count("num_mtp_modules"):
        config.notes.append("layers that predict further tokens are not counted")
    return decoder(config, Style(qk_norm="all"), moe=moe)

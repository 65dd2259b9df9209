"""Mixtral 8x7B and 8x22B."""

from model_optimizer.system.models.config import Config
from model_optimizer.system.models.decoder import Style, decoder
from model_optimizer.system.models.moe import Moe
from model_optimizer.system.models.shape import Shape

MODEL_TYPES = ("mixtral",)


def shape(config: Config) -> Shape:
    layers = config.layers()
    moe = Moe(
        layers=layers, routed=config.need("num_local_experts"), active=config.need("num_experts_per_tok"),
        intermediate=config.need("intermediate_size"), block="block_sparse_moe", names=("w1", "w3", "w2"),
    )  # fmt: skip
    return decoder(config, Style(), moe=moe, windows=((config.whole("sliding_window"), layers),))

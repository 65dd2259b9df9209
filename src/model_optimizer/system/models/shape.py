"""What a family works out from a config: the weights and the cache of its layers."""

from dataclasses import dataclass

from model_optimizer.core import AttentionKind, Experts, LayerGroup, Weight


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """`encoder` is None when the model has a vision or audio encoder that the config does not size.

    `in_transformers` is false for architectures that transformers loads only with foreign code.
    """

    layers: int
    hidden_size: int
    intermediate_size: int
    vocab_size: int
    heads: int
    kv_heads: int
    head_dim: int
    attention: AttentionKind
    groups: tuple[LayerGroup, ...]
    weights: tuple[Weight, ...]
    encoder: tuple[Weight, ...] | None = ()
    experts: Experts | None = None
    tied: bool = False
    max_position: int | None = None
    in_transformers: bool = True


def kind_of(heads: int, kv_heads: int) -> AttentionKind:
    """How query heads share key-value heads."""
    if kv_heads >= heads:
        return "mha"
    return "mqa" if kv_heads == 1 else "gqa"

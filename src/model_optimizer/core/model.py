"""The shape of a model, read from its config.json and the headers of its safetensors files.

Weights are never loaded. Sizes of projections are counts of elements; a layer that has none of a
kind says 0.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

AttentionKind = Literal["mha", "gqa", "mqa", "mla", "linear", "none"]
Task = Literal["generate", "embed", "rerank", "vision"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerGroup:
    """Layers that keep the same kind of KV cache.

    `window` is the number of tokens that a sliding-window layer remembers, None for full attention.
    `kv_bytes_per_token_16` is what one layer of the group stores a token at 16 bits, before tensor
    parallelism: 2 x kv_heads x head_dim x 2, or the latent for MLA. `state_bytes` is what a layer
    stores a request whatever its length (Mamba, linear attention).
    """

    kind: AttentionKind
    layers: int
    window: int | None = None
    kv_bytes_per_token_16: int = 0
    state_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Experts:
    """Routed experts of a mixture-of-experts model; sizes are of one MoE layer."""

    routed: int
    active: int
    shared: int = 0
    layers: int = 0
    intermediate_size: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantization:
    """What the checkpoint says of itself. `scheme` is one of ours when it could be recognised."""

    method: str
    scheme: str | None = None
    weight_bits: int | None = None
    activation_bits: int | None = None
    group_size: int | None = None
    excluded: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSpec:
    """Everything that planning needs to know of a model.

    `parameters` counts every weight that is stored once (tied embeddings count once);
    `embedding_parameters` are the input embedding, `head_parameters` the output head (0 when tied),
    `active_parameters` those that one token passes through. `parameters_source` is `header` when
    read from safetensors headers, `config` when computed from config.json.
    """

    name: str
    path: str | None = None
    architecture: str
    model_type: str
    task: Task
    parameters: int
    active_parameters: int
    embedding_parameters: int
    head_parameters: int = 0
    parameters_source: Literal["header", "config"] = "config"
    checkpoint_bytes: int | None = None
    dtype: str | None = None
    layers: int
    hidden_size: int
    intermediate_size: int
    vocab_size: int
    heads: int
    kv_heads: int
    head_dim: int
    attention: AttentionKind
    groups: tuple[LayerGroup, ...]
    experts: Experts | None = None
    tied_embeddings: bool = False
    max_position: int | None = None
    pooling: str | None = None
    labels: int | None = None
    quantization: Quantization | None = None
    config: Mapping[str, object] | None = None
    provenance: str = "config.json"

    def kv_bytes_per_token(self, bits: int = 16) -> int:
        """Bytes of KV cache that a token of full-attention layers costs in all layers together."""
        return sum(g.layers * g.kv_bytes_per_token_16 for g in self.groups) * bits // 16

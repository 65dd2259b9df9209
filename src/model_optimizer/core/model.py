"""The shape of a model, read from its config.json and the headers of its safetensors files.

Weights are never loaded. Sizes of projections are counts of elements; a layer that has none of a
kind says 0.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Literal

AttentionKind = Literal["mha", "gqa", "mqa", "mla", "linear", "none"]
Task = Literal["generate", "embed", "rerank", "vision"]
Role = Literal[
    "embedding", "head", "attention", "mlp", "expert", "shared_expert", "router", "norm", "mixer", "indexer",
    "pooler", "classifier", "vision", "mtp",
]  # fmt: skip
Split = Literal["rows", "columns", "kv_heads", "replicated"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Weight:
    """`copies` tensors of one shape, as the modules of the architecture have them.

    `name` is the path in the published checkpoint with `*` for numbers; a linear layer has the shape
    (outputs, inputs). `active` is how many of the copies one token passes through, None for all.
    `split` says how tensor parallelism divides it: `kv_heads` are rows that are repeated when there
    are more GPUs than key-value heads. `role` is `mixer` for Mamba and linear attention, `indexer`
    for the selector of sparse attention, `mtp` for layers that predict further tokens.
    """

    name: str
    shape: tuple[int, ...]
    copies: int = 1
    active: int | None = None
    role: Role
    split: Split = "replicated"

    @property
    def parameters(self) -> int:
        return self.copies * prod(self.shape)

    @property
    def active_parameters(self) -> int:
        return (self.copies if self.active is None else self.active) * prod(self.shape)


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerGroup:
    """Layers that keep the same kind of KV cache.

    `window` is the number of tokens that a sliding-window layer remembers, None for full attention.
    `kv_bytes_per_token_16` is what one layer of the group stores a token at 16 bits, before tensor
    parallelism: 2 x kv_heads x head_dim x 2, or the latent for MLA; 0 in encoders, which keep none.
    `state_bytes` is what a layer stores a request whatever its length (Mamba, linear attention).
    `kv_heads` and `head_dim` are those of this group (for MLA 1 and the latent); `index_bytes_per_token`
    is what the selector of sparse attention stores a token, whatever the KV cache's number format.
    """

    kind: AttentionKind
    layers: int
    window: int | None = None
    kv_bytes_per_token_16: int = 0
    state_bytes: int = 0
    kv_heads: int = 0
    head_dim: int = 0
    index_bytes_per_token: int = 0


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
    """What the checkpoint says of itself. `scheme` is one of ours when it could be recognised.

    `group_size` 0 means one scale a channel (or tensor), None that it is not said; `excluded` are names
    or patterns of layers that kept their precision; `kv_bits` is set when the checkpoint brings scales
    for a quantized KV cache. `zero_points` None means that it does not say whether integers have them.
    """

    method: str
    scheme: str | None = None
    weight_bits: int | None = None
    activation_bits: int | None = None
    group_size: int | None = None
    excluded: tuple[str, ...] = ()
    kv_bits: int | None = None
    zero_points: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSpec:
    """Everything that planning needs to know of a model.

    `parameters` counts every weight that is stored once (tied embeddings count once), also when the
    checkpoint packs several into one number; scales and zero points are not parameters.
    `embedding_parameters` are the lookup tables at the input, `head_parameters` the output head (0 when
    tied or absent), `active_parameters` those that one token of text passes through, the embedding among
    them. `parameters_source` is `header` when read from safetensors headers, `config` when computed
    from config.json.

    `vision_parameters` are the encoders of other inputs and their projectors, part of `parameters`;
    None when the model has such an encoder but its config.json does not give its size. `mtp_parameters`
    are layers for predicting further tokens, stored beside the model, not loaded in normal service and
    not part of `parameters`. `weights` lists the tensors by shape. `remote_code` is true when transformers
    loads the model only with Python code from its repository, which is refused here; engines with
    an implementation of their own do without. `dtype` is bf16, fp16, fp32 or the checkpoint's own word.
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
    vision_parameters: int | None = 0
    mtp_parameters: int = 0
    weights: tuple[Weight, ...] = ()
    remote_code: bool = False
    notes: tuple[str, ...] = ()

    def kv_bytes_per_token(self, bits: int = 16) -> int:
        """Bytes of KV cache that a token of full-attention layers costs in all layers together."""
        return sum(g.layers * g.kv_bytes_per_token_16 for g in self.groups) * bits // 16

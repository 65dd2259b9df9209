"""Multi-head latent attention (MLA), with or without the selector of sparse attention."""

from dataclasses import dataclass

from model_optimizer.core import LayerGroup, Weight

from .config import Config
from .parts import linear, norm

# The FP8 key of the selector and its scale: one byte a dimension, and 4 bytes for every 128 of them.
_INDEX_BLOCK = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class Latent:
    """Sizes of latent attention. `query_rank` is None when queries are projected in one step."""

    hidden: int
    heads: int
    query_rank: int | None
    rank: int
    rope: int
    no_rope: int
    value: int
    bias: bool = False
    index_heads: int = 0
    index_dim: int = 0

    @classmethod
    def of(cls, config: Config, *, index_heads: int = 0) -> "Latent":
        """`index_heads` is the default of the architecture, 0 for one without a selector."""
        return cls(
            hidden=config.need("hidden_size"),
            heads=config.need("num_attention_heads"),
            query_rank=config.whole("q_lora_rank") or None,
            rank=config.need("kv_lora_rank"),
            rope=config.need("qk_rope_head_dim"),
            no_rope=config.need("qk_nope_head_dim"),
            value=config.need("v_head_dim"),
            bias=config.flag("attention_bias"),
            index_heads=config.count("index_n_heads", default=index_heads) if index_heads else 0,
            index_dim=config.count("index_head_dim", default=128) if index_heads else 0,
        )

    def weights(self, prefix: str, layers: int) -> list[Weight]:
        query = self.heads * (self.no_rope + self.rope)
        made: list[Weight] = []
        if self.query_rank is None:
            made += linear(f"{prefix}.q_proj", query, self.hidden, layers, role="attention", split="rows")
        else:
            made += linear(
                f"{prefix}.q_a_proj", self.query_rank, self.hidden, layers, role="attention", bias=self.bias
            )
            made += norm(f"{prefix}.q_a_layernorm", self.query_rank, layers)
            made += linear(
                f"{prefix}.q_b_proj", query, self.query_rank, layers, role="attention", split="rows"
            )
        latent = self.rank + self.rope
        made += linear(
            f"{prefix}.kv_a_proj_with_mqa", latent, self.hidden, layers, role="attention", bias=self.bias
        )
        made += norm(f"{prefix}.kv_a_layernorm", self.rank, layers)
        expanded = self.heads * (self.no_rope + self.value)
        made += linear(f"{prefix}.kv_b_proj", expanded, self.rank, layers, role="attention", split="rows")
        made += linear(
            f"{prefix}.o_proj",
            self.hidden,
            self.heads * self.value,
            layers,
            role="attention",
            split="columns",
            bias=self.bias,
        )
        return made + self._selector(f"{prefix}.indexer", layers)

    def _selector(self, prefix: str, layers: int) -> list[Weight]:
        if not self.index_heads or self.query_rank is None:
            return []
        made = linear(
            f"{prefix}.wq_b", self.index_heads * self.index_dim, self.query_rank, layers, role="indexer"
        )
        made += linear(f"{prefix}.wk", self.index_dim, self.hidden, layers, role="indexer")
        made += norm(f"{prefix}.k_norm", self.index_dim, layers, bias=True)
        return made + linear(f"{prefix}.weights_proj", self.index_heads, self.hidden, layers, role="indexer")

    def group(self, layers: int) -> LayerGroup:
        latent = self.rank + self.rope
        index = self.index_dim + 4 * -(-self.index_dim // _INDEX_BLOCK) if self.index_heads else 0
        return LayerGroup(
            kind="mla", layers=layers, kv_bytes_per_token_16=2 * latent, kv_heads=1, head_dim=latent,
            index_bytes_per_token=index,
        )  # fmt: skip

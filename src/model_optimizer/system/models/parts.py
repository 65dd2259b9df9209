"""The parts that architectures are made of, as weights: each function returns those of all its layers."""

from dataclasses import dataclass
from typing import Literal

from model_optimizer.core import LayerGroup, Weight
from model_optimizer.core.model import Role, Split

from .config import Config
from .shape import kind_of

Mlp = Literal["gated", "fused", "plain"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Heads:
    """Sizes of one kind of attention layer; `head_dim` may differ from hidden / heads."""

    hidden: int
    heads: int
    kv_heads: int
    head_dim: int

    @classmethod
    def of(cls, config: Config, *, head_dim: int | None = None, each: bool = False) -> "Heads":
        """From the usual keys. `each`: unless it is said, every head has keys and values of its own."""
        hidden, heads = config.need("hidden_size"), config.need("num_attention_heads")
        if "num_key_value_heads" not in config.keys and not each and not config.condensed:
            config.missing.append("`num_key_value_heads`")
        kv_heads = config.count("num_key_value_heads", default=heads) or heads
        size = head_dim or config.count("head_dim") or config.count("attention_head_dim")
        if not size and hidden % heads:
            config.contradiction(
                f"`hidden_size` {hidden} is not a multiple of {heads} heads, and `head_dim` is not given"
            )
        if heads % kv_heads:
            config.contradiction(f"{heads} heads cannot share {kv_heads} key-value heads")
        return cls(hidden=hidden, heads=heads, kv_heads=kv_heads, head_dim=size or hidden // heads)

    @property
    def kv_bytes_per_token_16(self) -> int:
        return 2 * self.kv_heads * self.head_dim * 2

    def group(self, layers: int, window: int | None = None) -> LayerGroup:
        return LayerGroup(
            kind=kind_of(self.heads, self.kv_heads), layers=layers, window=window,
            kv_bytes_per_token_16=self.kv_bytes_per_token_16, kv_heads=self.kv_heads, head_dim=self.head_dim,
        )  # fmt: skip


def linear(
    name: str, out: int, into: int, copies: int, *, role: Role, split: Split = "replicated",
    bias: bool = False, active: int | None = None,
) -> list[Weight]:  # fmt: skip
    """A matrix of `out` x `into`, and its bias."""
    made = [
        Weight(name=f"{name}.weight", shape=(out, into), copies=copies, active=active, role=role, split=split)
    ]
    if bias:
        kept: Split = "replicated" if split == "columns" else split
        made.append(
            Weight(name=f"{name}.bias", shape=(out,), copies=copies, active=active, role=role, split=kept)
        )
    return made


def vector(
    name: str, size: int, copies: int, *, role: Role = "norm", split: Split = "replicated"
) -> list[Weight]:
    return [Weight(name=name, shape=(size,), copies=copies, role=role, split=split)]


def norm(name: str, size: int, copies: int, *, bias: bool = False) -> list[Weight]:
    made = vector(f"{name}.weight", size, copies)
    return made + vector(f"{name}.bias", size, copies) if bias else made


def table(name: str, rows: int, columns: int) -> list[Weight]:
    """A lookup table at the input."""
    return [Weight(name=name, shape=(rows, columns), role="embedding", split="rows")]


def head(name: str, vocab: int, hidden: int, *, bias: bool = False) -> list[Weight]:
    return linear(name, vocab, hidden, 1, role="head", split="rows", bias=bias)


def attention(
    prefix: str, sizes: Heads, copies: int, *, bias: bool = False, output_bias: bool = False,
    qk_norm: Literal["none", "head", "all"] = "none", output: str = "o_proj", gated: bool = False,
) -> list[Weight]:  # fmt: skip
    """Query, key, value and output projections. `gated` doubles the query by a gate of the output."""
    wide, narrow = sizes.heads * sizes.head_dim, sizes.kv_heads * sizes.head_dim
    made = linear(
        f"{prefix}.q_proj",
        wide * (2 if gated else 1),
        sizes.hidden,
        copies,
        role="attention",
        split="rows",
        bias=bias,
    )
    for name in ("k_proj", "v_proj"):
        made += linear(
            f"{prefix}.{name}", narrow, sizes.hidden, copies, role="attention", split="kv_heads", bias=bias
        )
    made += linear(
        f"{prefix}.{output}", sizes.hidden, wide, copies, role="attention", split="columns", bias=output_bias
    )
    if qk_norm == "head":
        made += norm(f"{prefix}.q_norm", sizes.head_dim, copies) + norm(
            f"{prefix}.k_norm", sizes.head_dim, copies
        )
    elif qk_norm == "all":
        made += norm(f"{prefix}.q_norm", wide, copies) + norm(f"{prefix}.k_norm", narrow, copies)
    return made


def fused_attention(
    prefix: str, sizes: Heads, copies: int, *, name: str = "qkv_proj", output: str = "o_proj",
    bias: bool = False, output_bias: bool = False,
) -> list[Weight]:  # fmt: skip
    """Attention whose query, key and value are one matrix."""
    wide, narrow = sizes.heads * sizes.head_dim, sizes.kv_heads * sizes.head_dim
    made = linear(
        f"{prefix}.{name}", wide + 2 * narrow, sizes.hidden, copies, role="attention", split="rows", bias=bias
    )
    return made + linear(
        f"{prefix}.{output}", sizes.hidden, wide, copies, role="attention", split="columns", bias=output_bias
    )


def mlp(
    prefix: str, hidden: int, intermediate: int, copies: int, *, kind: Mlp = "gated", bias: bool = False,
    role: Role = "mlp", names: tuple[str, ...] = (), active: int | None = None,
) -> list[Weight]:  # fmt: skip
    """Feed-forward layers: `gated` (gate, up, down), `fused` (the first two as one), `plain` (up, down)."""
    usual = {
        "gated": ("gate_proj", "up_proj", "down_proj"),
        "fused": ("gate_up_proj", "down_proj"),
        "plain": ("up_proj", "down_proj"),
    }
    *ups, down = names or usual[kind]
    width = intermediate * (2 if kind == "fused" else 1)
    made: list[Weight] = []
    for name in ups:
        made += linear(
            f"{prefix}.{name}", width, hidden, copies, role=role, split="rows", bias=bias, active=active
        )
    return made + linear(
        f"{prefix}.{down}", hidden, intermediate, copies, role=role, split="columns", bias=bias, active=active
    )

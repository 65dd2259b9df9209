"""The KV cache: bytes a token in each layer, blocks, and how many requests of a length they hold.

Layers of one kind form groups of equal size that share blocks, as vLLM does it: a model with windows or
with states needs fewer blocks a request than its layers would alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil
from typing import Literal

from model_optimizer.core import Fit, LayerGroup, ModelSpec, UsageError

from .split import Split, local_kv_heads, local_layers

# Element sizes by the value of --kv-cache-dtype; packed formats keep scales beside the numbers.
ELEMENT_BYTES = {
    "auto": None, "bfloat16": 2.0, "float16": 2.0, "bf16": 2.0, "fp16": 2.0, "fp8": 1.0, "fp8_e4m3": 1.0,
    "fp8_e5m2": 1.0, "int8": 1.0, "nvfp4": 0.5 + 1 / 16,
}  # fmt: skip
# What the sparse attention of DeepSeek V3.2 stores a token in FP8: 512 values, 4 scales, 64 in 16 bits.
SPARSE_LATENT_FP8 = 656

Line = Literal["blocks", "groups", "concurrency"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerKind:
    """Layers of one GPU that cache alike. `state_bytes` is what one keeps a request, whatever its length."""

    layers: int
    bytes_per_token: int = 0
    window: int | None = None
    state_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """`windows`: layers with a window keep no more than it. `step_tokens` is the largest chunk of a step."""

    block_size: int
    step_tokens: int
    windows: bool = True
    line: Line = "concurrency"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Group:
    kind: LayerKind
    copies: int
    block_size: int

    def blocks(self, length: int, step_tokens: int) -> int:
        """Blocks that one request of this length takes in each of the groups of this kind."""
        if self.kind.state_bytes:
            return 1
        if self.kind.window is None:
            return ceil(length / self.block_size)
        held = min(self.kind.window - 1 + step_tokens, length)
        return ceil(held / self.block_size) + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """`page_bytes` of a block in all layers that share its number."""

    groups: tuple[_Group, ...]
    page_bytes: int
    rules: Rules

    def blocks(self, available: int) -> int:
        return max(0, available // self.page_bytes) if self.page_bytes else 0

    def blocks_a_request(self, length: int) -> int:
        return sum(g.copies * g.blocks(length, self.rules.step_tokens) for g in self.groups)

    def bytes_a_request(self, length: int) -> int:
        return self.blocks_a_request(length) * self.page_bytes

    def concurrency(self, blocks: int, length: int) -> float:
        return blocks / self.blocks_a_request(length)

    def tokens(self, blocks: int, length: int) -> int:
        """What the line "GPU KV cache size" will say."""
        if self.rules.line == "concurrency":
            return int(self.concurrency(blocks, length) * length)
        groups = sum(group.copies for group in self.groups)
        return blocks // groups * min(group.block_size for group in self.groups)

    def largest_length(self, blocks: int, limit: int) -> int:
        """The longest request that the blocks hold; 0 when they hold none."""
        low, high = 0, limit
        while low < high:
            middle = (low + high + 1) // 2
            if self.blocks_a_request(middle) <= blocks:
                low = middle
            else:
                high = middle - 1
        return low


def kinds(spec: ModelSpec, split: Split, *, dtype: str, element_bytes: int) -> tuple[LayerKind, ...]:
    """The layers of one GPU by what they cache, in the KV cache's number format. Encoders have none."""
    found = [_kind(group, split, dtype=dtype, element_bytes=element_bytes) for group in spec.groups]
    return tuple(kind for kind in found if kind.bytes_per_token or kind.state_bytes)


def _kind(group: LayerGroup, split: Split, *, dtype: str, element_bytes: int) -> LayerKind:
    size = element_size(dtype, element_bytes)
    if group.kind == "mla":
        # The latent is needed by all heads, so every GPU keeps all of it.
        per_token = ceil(group.head_dim * size)
        if group.index_bytes_per_token and size == 1:
            per_token = SPARSE_LATENT_FP8
    elif group.kv_heads:
        per_token = ceil(group.kv_bytes_per_token_16 / 2 * size / group.kv_heads)
        per_token *= local_kv_heads(group.kv_heads, split)
    else:
        per_token = ceil(group.kv_bytes_per_token_16 / 2 * size)
    return LayerKind(
        layers=local_layers(group.layers, split),
        bytes_per_token=per_token + group.index_bytes_per_token,
        window=group.window,
        state_bytes=ceil(group.state_bytes / split.tensor),
    )


def element_size(dtype: str, element_bytes: int) -> float:
    """Bytes of one number in the KV cache. UsageError for a format that is not known."""
    if dtype not in ELEMENT_BYTES:
        raise UsageError(
            f"there is no KV cache format `{dtype}`", hint=(f"known: {', '.join(sorted(ELEMENT_BYTES))}",)
        )
    found = ELEMENT_BYTES[dtype]
    return float(element_bytes) if found is None else found


def layout(found: Sequence[LayerKind], rules: Rules) -> Layout:
    """Blocks and groups of these layers. An empty layout where no layer caches anything."""
    layers = _merged(found if rules.windows else [_without_window(kind) for kind in found])
    attention = [kind for kind in layers if kind.bytes_per_token]
    states = [kind for kind in layers if kind.state_bytes]
    if not states and all(kind.window is None for kind in attention):
        return _uniform(attention, rules)
    if not states and len({kind.window for kind in attention}) == 1:
        return _uniform(attention, rules)
    return _grouped(attention, states, rules)


def _merged(found: Sequence[LayerKind]) -> list[LayerKind]:
    """Layers that cache alike belong together, whatever else tells them apart."""
    counts: dict[LayerKind, int] = {}
    for kind in found:
        alike = replace(kind, layers=0)
        counts[alike] = counts.get(alike, 0) + kind.layers
    return [replace(kind, layers=layers) for kind, layers in counts.items()]


def _without_window(kind: LayerKind) -> LayerKind:
    return replace(kind, window=None)


def _uniform(layers: Sequence[LayerKind], rules: Rules) -> Layout:
    """One group of all layers, also when their sizes differ."""
    if not layers:
        return Layout(groups=(), page_bytes=0, rules=rules)
    page = sum(kind.layers * kind.bytes_per_token for kind in layers) * rules.block_size
    return Layout(
        groups=(_Group(kind=layers[0], copies=1, block_size=rules.block_size),), page_bytes=page, rules=rules
    )


def _grouped(attention: Sequence[LayerKind], states: Sequence[LayerKind], rules: Rules) -> Layout:
    """Several kinds that share blocks of one size; smaller layers put more tokens into a block."""
    block = rules.block_size
    if attention and states:
        # A block of attention is made large enough to hold one state.
        widest = max(kind.bytes_per_token for kind in attention)
        block = max(block, block * ceil(max(s.state_bytes for s in states) / (block * widest)))
    sizes = [block * kind.bytes_per_token for kind in attention] + [s.state_bytes for s in states]
    page = max(sizes)
    every = [*attention, *states]
    fewest, most = min(k.layers for k in every), max(k.layers for k in every)
    size = most if most < 1.5 * fewest else fewest
    groups = tuple(
        _Group(
            kind=kind,
            copies=ceil(kind.layers / size),
            block_size=_block_of(kind, page, block),
        )
        for kind in every
    )
    return Layout(groups=groups, page_bytes=page * size, rules=rules)


def _block_of(kind: LayerKind, page: int, block: int) -> int:
    own = block * kind.bytes_per_token
    return block * (page // own) if own and not page % own else block


def held(found: Fit, spec: ModelSpec) -> int:
    """Tokens of requests of the fit's longest length that the cache holds at once.

    More than the engine prints where layers keep no more than a window of each request: its line counts a
    token as if all layers kept it, its concurrency does not.
    """
    if not any(group.window for group in spec.groups):
        return found.kv_cache_tokens
    return max(found.kv_cache_tokens, int(found.max_concurrency * found.max_model_len))

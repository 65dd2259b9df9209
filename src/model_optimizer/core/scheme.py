"""A number format: how many bits weights, activations and KV cache have. Names no file format."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

LEAST_GROUP = 32
"""Columns of the smallest group of integers that kernels take; NVFP4 has 16, and no other number."""

Number = Literal["float", "int", "fp8", "fp4"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """What a candidate of this scheme must reach against its reference, with the source of it.

    `recovery` is the least ratio of quality (for perplexity: reference / candidate); `top1` the least
    share of positions whose most likely token agrees, near-ties apart; `cosine` the least mean cosine
    of pooled vectors; `rank` the least share of texts whose nearest neighbour is the reference's, or one that
    the reference finds about as near (verify/limits.py). `topk` is the least share of positions whose most
    likely token is among the candidate's five most likely, `free_running` that of prompts which both models
    continue with the same tokens to the end, near-ties apart; None reports them only.
    """

    recovery: float
    top1: float
    cosine: float
    rank: float
    source: str
    topk: float | None = None
    free_running: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Scheme:
    """`group_size` 0 means one scale a channel; `min_compute_capability` None means any GPU.

    On a GPU below `native_compute_capability` the weights still load but are computed in 16 bits.
    """

    name: str
    title: str
    weight_bits: int
    weight_number: Number
    activation_bits: int
    activation_number: Number
    group_size: int = 0
    kv_bits: int = 16
    min_compute_capability: tuple[int, int] | None = None
    native_compute_capability: tuple[int, int] | None = None
    max_compute_capability: tuple[int, int] | None = None
    needs_calibration: bool = False
    quantizes_embeddings: bool = False
    gate: Gate
    source: str

    def group_for(self, columns: Iterable[int]) -> int:
        """The largest of the group size, its half, ... that divides all columns; the group size where none
        does, and 0 (one scale a row) as it is."""
        widths, size = set(columns), self.group_size
        while size and size >= min(self.group_size, LEAST_GROUP):
            if all(width % size == 0 for width in widths):
                return size
            size //= 2
        return self.group_size

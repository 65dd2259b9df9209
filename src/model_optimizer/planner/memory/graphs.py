"""CUDA graphs: which batch sizes are captured, and about how much memory they take."""

from math import ceil

from model_optimizer.core import ModelSpec, Term
from model_optimizer.facts.memory import Graphs

from .split import Split, local_layers

LARGEST = 512


def capture_sizes(max_num_seqs: int, max_num_batched_tokens: int, *, step: int) -> tuple[int, ...]:
    """1, 2, 4, then every 8th up to 256 and every `step`th up to twice the sequences, at most 512."""
    largest = min(2 * max_num_seqs, LARGEST, max_num_batched_tokens)
    sizes = [size for size in (1, 2, 4) if size <= largest]
    sizes += range(8, min(largest + 1, 256), 8)
    sizes += range(256, largest + 1, step)
    return tuple(sizes)


def memory(spec: ModelSpec, split: Split, sizes: tuple[int, ...], law: Graphs, *, counted: bool) -> Term:
    """All graphs of one GPU. The law is fitted, and the term says so."""
    if not sizes:
        return Term(name="CUDA graphs", bytes=0, because="none are captured", source="derived")
    layers = local_layers(spec.layers, split)
    width = ceil(spec.intermediate_size / split.tensor)
    pool = round(law.pool_share * sizes[-1] * (3 * width + 4 * spec.hidden_size) * 2)
    total = layers * len(sizes) * law.bytes_per_layer + pool
    where = "subtracted from the KV cache" if counted else "on top: not subtracted from the KV cache"
    return Term(
        name="CUDA graphs",
        bytes=total,
        because=(
            f"{len(sizes)} sizes up to {sizes[-1]} x {layers} layers x {law.bytes_per_layer / 2**20:.2g} MiB"
            + (f", and {law.pool_share:g} x the buffers of the largest" if pool else "")
            + f" (fitted); {where}"
        ),
        source="table",
    )

"""Layer `service`, servers of vectors: does one prompt get one vector, whatever is computed beside it?"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from .judged import Judged
from .service_seen import Said, Told, limit

SAME_VECTOR = 0.9999
"""Least cosine of a vector under load to the one alone. ASSUMED: padding and another order of sums were seen
to move it by 1e-6 in 32 bits and by 1e-5 in FP16; INT8 with a scale for a whole batch moves it further."""

SAME_BF16 = 0.998
"""The same in BF16, which rounds eight times as coarsely as FP16: by 3e-5 (MiniLM) and 9e-5 (tiny-qwen3) in
PyTorch on a CPU, both of six layers, where FP16 moved by 1.3e-6 at most. ASSUMED for deeper ones."""

QUANTIZED_VECTOR = 0.98
"""Below it no number format excuses it: the gate of INT8 for the model itself (schemes/int8)."""

MOVED = "a vector depends on what is computed beside it"


def vectors(
    pairs: Sequence[tuple[Said, Said]], alone: Mapping[int, Said], concurrency: int, told: Told
) -> tuple[Judged, ...]:
    """Vectors that are nearer to what another prompt gets, then the least cosine to the one alone.

    `pairs` are (alone, under load); where they may differ more is a matter of the number format.
    """
    near = [_cosine(wanted.vector, got.vector) for wanted, got in pairs]
    mixed = [
        got
        for (wanted, got), own in zip(pairs, near, strict=True)
        if any(_cosine(a.vector, got.vector) > own + 1e-6 for a in alone.values() if a is not wanted)
    ]
    foreign = limit(
        "mixed_streams", float(len(mixed)), "= 0", not mixed, samples=len(pairs),
        where=f"{len(mixed)} of {len(pairs)} vectors are nearer to what another request gets",
        because=f"prompt {mixed[0].prompt + 1} got another one's vector" if mixed else None,
    )  # fmt: skip
    if not mixed and len(alone) > 1 and _all_one(alone):
        because = "all prompts get the same vector: those that are mixed up could not be told apart"
        foreign = Judged(comparison=replace(foreign.comparison, outcome="undecided", because=because))
    return foreign, _same(min(near, default=0.0), len(pairs), concurrency, told)


def _all_one(alone: Mapping[int, Said]) -> bool:
    first, *others = (said.vector for said in alone.values())
    return all(_cosine(first, other) > 1 - 1e-9 for other in others)


def _same(least: float, samples: int, concurrency: int, told: Told) -> Judged:
    """By the rule of the number format: float formats have no scale that a batch shares."""
    wanted = SAME_BF16 if told.scheme is not None and told.scheme.name == "bf16" else SAME_VECTOR
    where = f"least cosine at concurrency {concurrency} to the vector alone; {_rule(told)}"
    found = limit(
        "same_vectors", least, f">= {wanted:g}", least >= wanted, samples=samples, where=where,
        because=f"{MOVED}; {_rule(told)}",
    )  # fmt: skip
    if is_float(told) or not QUANTIZED_VECTOR <= least < wanted:
        return found
    because = f"{MOVED}: right where {_of_batch(told)} has one scale for a whole batch"
    if told.scheme is None:
        because += ", a fault in 16 and 32 bits: --scheme NAME says which"
    return Judged(comparison=replace(found.comparison, outcome="undecided", because=because))


def is_float(told: Told) -> bool:
    """Whether weights, activations and KV cache all are floating point of 16 bits or more."""
    scheme = told.scheme
    return (
        scheme is not None
        and scheme.weight_number == scheme.activation_number == "float"
        and min(scheme.weight_bits, scheme.activation_bits, scheme.kv_bits) >= 16
    )


def _of_batch(told: Told) -> str:
    return told.scheme.name if told.scheme else "INT8"


def _rule(told: Told) -> str:
    """Which rule is taken, and by whose word."""
    if told.scheme is None:
        return "the rule of any format, since nobody says which it is"
    kind = "floats" if is_float(told) else "quantized formats"
    return f"the rule of {kind}, {told.scheme.name} by {told.by}"


def _cosine(one: Sequence[float], other: Sequence[float]) -> float:
    if len(one) != len(other):
        return -1.0
    lengths = math.hypot(*one) * math.hypot(*other)
    return sum(a * b for a, b in zip(one, other, strict=True)) / lengths if lengths else 0.0

"""How far an operator may be off on the reference's inputs, and a step's answers, by number format.

Lengths of differences as a share of the length of what is wanted.
"""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """`own` is the most that one operator may be off when computed alone; `stands_out` the least that counts
    as standing out among its peers; `place` from where a cut point is followed back; `answer` what a step
    may add to the model's answers before a search begins, and in 32 bits before it fails.
    """

    own: float
    stands_out: float
    place: float
    answer: float


EXACT = Limits(own=5e-6, stands_out=5e-6, place=2e-6, answer=1e-4)
"""In 32 bits: operators alone were seen at 5e-7 and below, answers of two layers at 7e-7, of 28 layers at
5e-6 (facts of the exporter's trials); an epsilon a hundred times too large makes 2e-5."""

HALF = Limits(own=5e-3, stands_out=2e-3, place=0.1, answer=0.05)
"""FP16: half a unit in the last place is 5e-4 of a number; products alone were seen at 4e-4."""

BRAIN = Limits(own=4e-2, stands_out=1.6e-2, place=0.2, answer=0.2)
"""BF16 has three bits less: eight times FP16's."""

EIGHT = Limits(own=0.15, stands_out=0.05, place=0.5, answer=0.5)
"""8 bits: products alone were seen at 1e-2; a scale off by two makes 0.09 for activations, 1 for weights."""

FOUR = Limits(own=0.35, stands_out=0.25, place=0.7, answer=0.8)
"""4 bits: 1e-1 was seen with blocks of 32."""

BY_SCHEME: Mapping[str, Limits] = {"fp32": EXACT, "fp16": HALF, "bf16": BRAIN}
BY_BITS: Mapping[int, Limits] = {4: FOUR, 8: EIGHT, 16: HALF, 32: EXACT}


def of_scheme(name: str, weight_bits: int) -> Limits:
    """The limits of a number format: its own, else those of its bits."""
    return BY_SCHEME.get(name) or BY_BITS.get(weight_bits) or FOUR

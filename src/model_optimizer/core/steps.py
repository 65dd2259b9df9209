"""How long one step of an engine takes: what a model of speed must answer.

A step computes one new token for each of some running sequences, and the prompt tokens of some others.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """What one step computes.

    `sequences` decode with `context` tokens in the KV cache, the mean of all: one token each, or `queries`
    where drafted tokens are checked. `tokens` are prompt tokens of `chunks` prompts, and `pairs` how many
    pairs of a query and a key their attention has: tokens x (tokens before the chunk + half of the chunk),
    summed.
    """

    sequences: float = 0
    context: float = 0.0
    tokens: float = 0
    chunks: float = 0
    pairs: float = 0.0
    queries: float = 1

    @property
    def positions(self) -> float:
        """All tokens that go through the layers."""
        return self.sequences * self.queries + self.tokens

    @property
    def rows(self) -> float:
        """Positions whose next token is wanted."""
        return self.sequences * self.queries + self.chunks


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTime:
    """Milliseconds of one step. `parts` names what they are spent on; they overlap where engines overlap.

    `bound` is the one that limits: `memory bandwidth`, `compute`, `launch overhead`, `network`.
    """

    ms: float
    parts: Mapping[str, float] = field(default_factory=dict[str, float])
    bound: str


class StepModel(Protocol):
    """Times in milliseconds. `provenance` says where they come from, in the words of a screen.

    `kind` names the row of facts.speed.accuracy that says how wrong it is: measured, tables, roofline.
    """

    @property
    def kind(self) -> str: ...

    @property
    def provenance(self) -> str: ...

    def prefill_ms(self, tokens: int, *, sequences: int = 1, cached: int = 0) -> float:
        """`sequences` prompts of `tokens` new tokens each, `cached` ones before them."""
        ...

    def decode_ms(self, sequences: float, context: float) -> float:
        """One token for each sequence."""
        ...

    def mixed_ms(self, batch: Batch) -> float:
        """Both in one step, as engines with chunked prefill do."""
        ...

    def explain(self, batch: Batch) -> StepTime:
        """The same number as `mixed_ms`, with what it is made of."""
        ...

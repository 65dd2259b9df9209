"""Speculative decoding: some tokens are drafted cheaply, and one step checks all of them.

With an acceptance of `a` a token, a step that checks `k` drafted tokens yields
(1 - a^(k + 1)) / (1 - a) tokens (Leviathan et al., arXiv 2211.17192). It pays while that is more than the
step and its drafts cost beside a plain step: at small batches, where steps wait for memory and further tokens
are nearly free.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

from model_optimizer.core.steps import Batch, StepModel, StepTime

Method = Literal["ngram", "draft", "eagle3", "mtp"]
# Acceptance that is taken when none is given. No source that holds across texts: assumed, and said so.
ASSUMED = {"ngram": 0.3, "draft": 0.6, "eagle3": 0.7, "mtp": 0.75}
# Matching n-grams is work of the host: a little a step and a sequence.
NGRAM_STEP_MS, NGRAM_SEQUENCE_MS = 0.05, 0.01
LARGEST_BATCH = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Speculation:
    """`tokens` are drafted each step; `acceptance` is the chance of each to be kept, given those before.

    `assumed` is true when nobody measured it.
    """

    method: Method
    tokens: int
    acceptance: float
    assumed: bool = False

    @property
    def yields(self) -> float:
        """Tokens that one step gives on average."""
        a, k = self.acceptance, self.tokens
        return k + 1.0 if a >= 1 else (1 - a ** (k + 1)) / (1 - a)


Draft = Callable[[float, float], float]
"""(sequences, context) -> milliseconds of drafting all tokens of a step."""


@dataclass(frozen=True, slots=True)
class Speculative:
    """A StepModel whose step is the time per token gained: a checking step over what it yields."""

    inner: StepModel
    speculation: Speculation
    draft: Draft
    kind: str
    provenance: str

    def prefill_ms(self, tokens: int, *, sequences: int = 1, cached: int = 0) -> float:
        return self.inner.prefill_ms(tokens, sequences=sequences, cached=cached)

    def decode_ms(self, sequences: float, context: float) -> float:
        return self._step_ms(sequences, context) / self.speculation.yields

    def mixed_ms(self, batch: Batch) -> float:
        if not batch.sequences:
            return self.inner.mixed_ms(batch)
        both = self.inner.mixed_ms(replace(batch, queries=self.speculation.tokens + 1))
        checked = self._check_ms(batch.sequences, batch.context)
        return max(both - checked, 0.0) + self.decode_ms(batch.sequences, batch.context)

    def explain(self, batch: Batch) -> StepTime:
        plain = self.inner.explain(replace(batch, queries=self.speculation.tokens + 1))
        whole = self.mixed_ms(batch)
        share = whole / plain.ms if plain.ms else 1.0
        return StepTime(ms=whole, parts={n: ms * share for n, ms in plain.parts.items()}, bound=plain.bound)

    def _check_ms(self, sequences: float, context: float) -> float:
        return self.inner.mixed_ms(
            Batch(sequences=sequences, context=context, queries=self.speculation.tokens + 1)
        )

    def _step_ms(self, sequences: float, context: float) -> float:
        return self._check_ms(sequences, context) + self.draft(sequences, context)

    def gain(self, sequences: float, context: float) -> float:
        """How many times faster than plain decoding; below 1 it costs."""
        return self.inner.decode_ms(sequences, context) / self.decode_ms(sequences, context)

    def break_even_acceptance(self, sequences: float, context: float) -> float | None:
        """The least acceptance that pays at a batch; None when even 1 does not."""
        wanted = self._step_ms(sequences, context) / self.inner.decode_ms(sequences, context)
        if wanted > self.speculation.tokens + 1:
            return None
        low, high = 0.0, 1.0
        for _ in range(30):
            middle = (low + high) / 2
            enough = replace(self.speculation, acceptance=middle).yields >= wanted
            low, high = (low, middle) if enough else (middle, high)
        return high

    def break_even_batch(self, context: float) -> int | None:
        """The largest number of sequences at which it still pays; None when it pays at none."""
        if self.gain(1, context) <= 1:
            return None
        low, high = 1, LARGEST_BATCH
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if self.gain(middle, context) > 1 else (low, middle - 1)
        return low


def speculative(model: StepModel, speculation: Speculation, draft: Draft) -> Speculative:
    word = "assumed" if speculation.assumed else "given"
    return Speculative(
        inner=model,
        speculation=speculation,
        draft=draft,
        kind=model.kind,
        provenance=(
            f"{model.provenance}; {speculation.method} drafts {speculation.tokens} tokens a step, "
            f"acceptance {speculation.acceptance:.0%} ({word})"
        ),
    )


def ngram_draft(speculation: Speculation) -> Draft:
    """Looked up in the prompt by the host."""
    return lambda sequences, _: NGRAM_STEP_MS + NGRAM_SEQUENCE_MS * sequences


def model_draft(speculation: Speculation, small: StepModel) -> Draft:
    """A small model of its own decodes every drafted token."""
    return lambda sequences, context: speculation.tokens * small.decode_ms(sequences, context)


def layer_draft(speculation: Speculation, model: StepModel, layers: int, head_share: float) -> Draft:
    """One layer of the model and an output head for every drafted token, as EAGLE-3 and MTP do.

    `head_share` is the head's part of the weights that a step reads.
    """
    share = (1 - head_share) / layers + head_share

    def draft(sequences: float, context: float) -> float:
        return speculation.tokens * share * model.decode_ms(sequences, context)

    return draft

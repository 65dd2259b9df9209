"""The encoder of images beside the language model: its operations, at the rate of products in 16 bits."""

from dataclasses import dataclass

from model_optimizer.core.steps import Batch, StepModel, StepTime

from .roofline import COMPUTE


@dataclass(frozen=True, slots=True, kw_only=True)
class WithImages:
    """A StepModel with `token_ms` more for each token of a prompt, over which its images are spread."""

    inner: StepModel
    token_ms: float

    @property
    def kind(self) -> str:
        return self.inner.kind

    @property
    def provenance(self) -> str:
        return f"{self.inner.provenance}; image encoder by its operations"

    def prefill_ms(self, tokens: int, *, sequences: int = 1, cached: int = 0) -> float:
        own = self.token_ms * tokens * sequences
        return self.inner.prefill_ms(tokens, sequences=sequences, cached=cached) + own

    def decode_ms(self, sequences: float, context: float) -> float:
        return self.inner.decode_ms(sequences, context)

    def mixed_ms(self, batch: Batch) -> float:
        return self.inner.mixed_ms(batch) + self.token_ms * batch.tokens

    def explain(self, batch: Batch) -> StepTime:
        found, own = self.inner.explain(batch), self.token_ms * batch.tokens
        parts = {**found.parts, COMPUTE: found.parts.get(COMPUTE, 0.0) + own}
        return StepTime(ms=found.ms + own, parts=parts, bound=max(parts, key=lambda name: parts[name]))

"""Measurements correct predictions: where a row was measured for the same GPU, engine release and scheme.

A row says how much slower or faster than predicted a server was at its load. For the same model the factor is
taken at the load that is asked about, between the loads that were measured; for other models of the same kind
of step the median of the factors is taken, within limits.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import exp, log
from statistics import median

from model_optimizer.core.ledger import LedgerRow
from model_optimizer.core.steps import Batch, StepModel, StepTime
from model_optimizer.facts.versions import minor

from .setup import Setup

# Another model's rows say something of the machine, but not everything: they move a prediction no further.
OTHERS_LIMIT = 0.25
FEWEST_OTHERS = 3

Predict = Callable[[LedgerRow], float | None]
"""What the uncorrected model says of a row's quantity; None when it cannot be asked."""


@dataclass(frozen=True, slots=True)
class Corrected:
    """A StepModel whose times are multiplied by a factor that depends on the number of sequences.

    `places` are logarithms of sequences, `factors` logarithms of factors, in the same order.
    """

    inner: StepModel
    places: tuple[float, ...]
    factors: tuple[float, ...]
    kind: str
    provenance: str

    def prefill_ms(self, tokens: int, *, sequences: int = 1, cached: int = 0) -> float:
        return self.inner.prefill_ms(tokens, sequences=sequences, cached=cached) * self._factor(sequences)

    def decode_ms(self, sequences: float, context: float) -> float:
        return self.inner.decode_ms(sequences, context) * self._factor(sequences)

    def mixed_ms(self, batch: Batch) -> float:
        return self.inner.mixed_ms(batch) * self._factor(batch.sequences + batch.chunks)

    def explain(self, batch: Batch) -> StepTime:
        plain = self.inner.explain(batch)
        factor = self._factor(batch.sequences + batch.chunks)
        parts = {name: ms * factor for name, ms in plain.parts.items()}
        return StepTime(ms=plain.ms * factor, parts=parts, bound=plain.bound)

    def _factor(self, sequences: float) -> float:
        at = log(max(sequences, 1.0))
        if at <= self.places[0] or len(self.places) == 1:
            return exp(self.factors[0])
        if at >= self.places[-1]:
            return exp(self.factors[-1])
        low = bisect_right(self.places, at) - 1
        share = (at - self.places[low]) / (self.places[low + 1] - self.places[low])
        return exp(self.factors[low] + share * (self.factors[low + 1] - self.factors[low]))


def matching(rows: Iterable[LedgerRow], setup: Setup) -> tuple[LedgerRow, ...]:
    """The rows that hold for a setup: same GPUs, engine, minor version, scheme and KV format."""
    return tuple(row for row in rows if _matches(row, setup))


def correct(model: StepModel, rows: Sequence[LedgerRow], setup: Setup, predict: Predict) -> Corrected | None:
    """`model` as the rows correct it; None when there are too few of them.

    `rows` are those that match; `predict` asks the uncorrected model what it says of a row.
    """
    ratios = [(row, log(row.measured / said)) for row in rows if (said := predict(row)) and _is_step(row)]
    own = [(row, ratio) for row, ratio in ratios if _same_model(row, setup)]
    if own:
        places, factors = _by_load(own)
        loads = ", ".join(f"{exp(place):.0f}" for place in places)
        sources = sorted({row.source.partition(" ")[0] for row, _ in own})
        return Corrected(
            inner=model,
            places=places,
            factors=factors,
            kind="measured",
            provenance=(
                f"measured: {len(own)} rows of this model, GPU, release and scheme, {loads} requests at once "
                f"({'; '.join(sources)}); between them {model.provenance}"
            ),
        )
    if len(ratios) < FEWEST_OTHERS:
        return None
    middle = max(-OTHERS_LIMIT, min(OTHERS_LIMIT, median(ratio for _, ratio in ratios)))
    models = sorted({row.model for row, _ in ratios})
    return Corrected(
        inner=model,
        places=(0.0,),
        factors=(middle,),
        kind=model.kind,
        provenance=(
            f"{model.provenance}; times x {exp(middle):.2f}, as measured with {', '.join(models)} here"
        ),
    )


def _by_load(rows: Sequence[tuple[LedgerRow, float]]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """The median factor at each number of requests at once, in order."""
    loads: dict[int, list[float]] = {}
    for row, ratio in rows:
        loads.setdefault(row.workload.concurrency or 1, []).append(ratio)
    ordered = sorted(loads)
    return tuple(log(n) for n in ordered), tuple(median(loads[n]) for n in ordered)


def _is_step(row: LedgerRow) -> bool:
    """Time per output token is what steps explain; waiting and throughput follow from it."""
    return row.quantity in ("tpot_ms.p50", "tpot_ms.mean") and row.workload.concurrency is not None


def _same_model(row: LedgerRow, setup: Setup) -> bool:
    return row.model.lower() == setup.model.name.lower()


def _matches(row: LedgerRow, setup: Setup) -> bool:
    if (row.gpu, row.engine, row.scheme) != (setup.gpu.name, setup.engine, setup.scheme.name):
        return False
    if setup.version is None or minor(row.version) != minor(setup.version):
        return False
    eager = row.settings.get("enforce-eager", "false") == "true"
    bits = 8 if row.settings.get("kv-cache-dtype", "auto").startswith("fp8") else 16
    return (row.gpus, eager, bits) == (setup.tensor_parallel, setup.eager, setup.kv_bits)

"""The table that users know: variant, memory, latency, throughput, quality, energy. One row a candidate."""

from collections.abc import Sequence
from dataclasses import dataclass

from model_optimizer.core import Candidate, Comparison, LoadPoint, Record, units

from .words import client_words

HEADLINE = ("recovery", "cosine", "score_correlation")
"""The comparison that stands for quality in one cell, the first of these that a verdict has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """Cells as text; the numbers behind bars are `None` where they were not measured.

    `latency` is the first token for models that generate, else the whole request, at the lowest load;
    `throughput` is the best of the loads, so that a server that answers one by one is not held against it.
    `note` says what became of the candidate.
    """

    name: str
    engine: str
    scheme: str
    size: str
    memory: str
    latency: str
    throughput: str
    quality: str
    energy: str
    note: str
    memory_bytes: int | None
    latency_ms: float | None
    throughput_per_s: float | None
    fate: str


def rows(record: Record) -> tuple[Row, ...]:
    """The reference first, then the others in the order of the run."""
    reference = next((c for c in record.candidates if c.name == "reference"), None)
    return tuple(_row(candidate, record, reference) for candidate in record.candidates)


def headings(record: Record) -> tuple[str, ...]:
    """What the columns hold for this task."""
    generates = record.model.task == "generate"
    return (
        "variant",
        "on disk",
        "memory",
        "first token" if generates else "request",
        "output tokens/s" if generates else "requests/s",
        "quality",
        "energy",
        "verdict",
    )


def cells(row: Row) -> tuple[str, ...]:
    """The cells under `headings`."""
    return (
        row.name,
        row.size,
        row.memory,
        row.latency,
        row.throughput,
        row.quality,
        row.energy,
        row.note,
    )


def _row(candidate: Candidate, record: Record, reference: Candidate | None) -> Row:
    points = candidate.measurement.points if candidate.measurement else ()
    generates = record.model.task == "generate"
    low, high = (points[0], best_load(points, generates=generates)) if points else (None, None)
    latency = (low.ttft_ms if generates else low.e2e_ms) if low else None
    throughput = throughput_of(high, generates=generates)
    memory = peak_memory(points)
    original = reference.measurement.points if reference and reference.measurement else ()
    baseline = throughput_of(best_load(original, generates=generates), generates=generates)
    return Row(
        name=candidate.name,
        engine=candidate.plan.engine,
        scheme=candidate.plan.scheme,
        size=units.show_bytes(candidate.artifact.bytes) if candidate.artifact else "-",
        memory=units.show_bytes(memory) if memory else "-",
        latency=units.show_ms(latency.p50) if latency else "-",
        throughput=_with_ratio(throughput, baseline if candidate is not reference else None),
        quality=_quality(candidate),
        energy=_energy(high, generates=generates) if high else "-",
        note=_note(candidate),
        memory_bytes=memory,
        latency_ms=latency.p50 if latency else None,
        throughput_per_s=throughput,
        fate=candidate.fate,
    )


def throughput_of(point: LoadPoint | None, *, generates: bool) -> float | None:
    """Output tokens a second for models that generate, else requests a second."""
    if point is None:
        return None
    return point.output_tokens_per_s if generates else point.requests_per_s


def best_load(points: Sequence[LoadPoint], *, generates: bool) -> LoadPoint | None:
    """The load at which most was answered."""
    return max(points, key=lambda point: throughput_of(point, generates=generates) or 0, default=None)


def peak_memory(points: Sequence[LoadPoint]) -> int | None:
    """The most that the server's processes held under any load, in bytes."""
    return max((p.memory_bytes for p in points if p.memory_bytes is not None), default=None)


def headline(candidate: Candidate) -> Comparison | None:
    """The comparison that stands for quality, None when nothing was compared."""
    found = {c.metric: c for verdict in candidate.verdicts for c in verdict.comparisons}
    return next((found[metric] for metric in HEADLINE if metric in found), None)


def _with_ratio(value: float | None, baseline: float | None) -> str:
    if value is None:
        return "-"
    text = f"{value:.0f}" if value >= 100 else f"{value:.3g}"
    return f"{text} ({units.show_ratio(value / baseline)})" if baseline else text


def _quality(candidate: Candidate) -> str:
    if candidate.name == "reference":
        return "the original"
    found = headline(candidate)
    if found is None or found.got is None:
        return "not compared"
    name = {"recovery": "of the original", "cosine": "cosine"}.get(found.metric, found.metric)
    return f"{found.got:.2%} {name}" if found.metric == "recovery" else f"{found.got:.4f} {name}"


def _energy(point: LoadPoint, *, generates: bool) -> str:
    if point.energy_j is None:
        return point.energy_source
    count = (point.output_tokens_per_s or 0) * point.window_s if generates else point.completed
    unit = "token" if generates else "request"
    return f"{point.energy_j / count:.3g} J/{unit}" if count else "-"


def client_notes(record: Record) -> tuple[str, ...]:
    """Where the load generator itself was late, and numbers are to be taken with care."""
    return tuple(
        f"{c.name}: {words[0].lower()}{words[1:]}"
        for c in record.candidates
        if c.measurement and (words := client_words(c.measurement.client))
    )


def _note(candidate: Candidate) -> str:
    words = {
        "reference": "reference",
        "winner": "passed, chosen",
        "served": "passed",
        "not-served": "not served",
        "failed": "failed",
        "waiting": "not finished",
    }[candidate.fate]
    return f"{words}: {candidate.because}" if candidate.because else words

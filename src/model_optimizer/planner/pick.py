"""The decision after measuring: which candidate to keep under the SLO, in words a manager can read."""

from collections.abc import Sequence
from dataclasses import dataclass

from model_optimizer.core import Candidate, LoadPoint, Percentiles, Slo, units

from .worth import Worth, worth

MARGIN = 0.05
"""A candidate must be this much faster, or this much smaller, before it displaces a simpler one. ASSUMED:
two runs of the same server on a shared machine differ by about as much."""

MOST_ADVICE = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Pick:
    """`name` is None when nothing met the SLO; `because` says why, or why this one."""

    name: str | None
    because: str


def pick(candidates: Sequence[Candidate], slo: Slo) -> Pick:
    """The best of the measured candidates, the reference among them.

    Those that meet the SLO at every load are ranked by throughput at the best of the loads; within MARGIN the
    one with less memory wins; the reference stays unless another is better by MARGIN in one of both.
    """
    measured = [c for c in candidates if c.measurement and c.measurement.points]
    if not measured:
        return Pick(name=None, because="no candidate could be measured")
    good = [c for c in measured if not violations(c, slo)]
    if not good:
        return Pick(name=None, because=_nothing_met(measured, slo))
    reference = next((c for c in good if c.fate == "reference"), None)
    best = max(good, key=_throughput)
    close = [c for c in good if _throughput(c) >= (1 - MARGIN) * _throughput(best)]
    best = min(close, key=lambda c: (_memory(c) or 0, c.name))
    if reference and best is not reference and not _better(best, reference):
        best = reference
    advice = [w.because for w in worth(measured) if w.advice != "keep" and _matters(w, best)]
    return Pick(name=best.name, because="; ".join([_reason(best, reference), *advice[:MOST_ADVICE]]))


def _matters(found: Worth, best: Candidate) -> bool:
    """Whether it says something of what was picked, or why a smaller one was not."""
    return found.candidate == best.name or (found.original == best.name and found.advice == "revert")


def violations(candidate: Candidate, slo: Slo) -> list[str]:
    """Each limit of the SLO that a load point broke, in words; empty when all were kept."""
    points = candidate.measurement.points if candidate.measurement else ()
    return [text for point in points for text in _broken(point, slo)]


def _broken(point: LoadPoint, slo: Slo) -> list[str]:
    broken: list[str] = []
    total = point.completed + point.failed
    if total == 0 or point.failed / total > slo.error_rate:
        broken.append(f"{point.failed} of {total} requests failed at {point.target}")
    limits = (
        ("TTFT", point.ttft_ms, slo.ttft_ms),
        ("TPOT", point.tpot_ms, slo.tpot_ms),
        ("E2E", point.e2e_ms, slo.e2e_ms),
    )
    for name, got, limit in limits:
        value = at(got, slo.percentile)
        if limit is not None and (value is None or value > limit):
            shown = "is unknown" if value is None else f"is {value:.1f} ms"
            broken.append(f"{name} P{slo.percentile:g} {shown}, {limit:g} ms was asked, at {point.target}")
    return broken


def at(percentiles: Percentiles, percentile: float) -> float | None:
    """The measured percentile that is the nearest one at or above the asked."""
    if percentile <= 50:
        return percentiles.p50
    return percentiles.p90 if percentile <= 90 else percentiles.p99


def _throughput(candidate: Candidate) -> float:
    """The best of the loads."""
    points = candidate.measurement.points if candidate.measurement else ()
    return max((p.output_tokens_per_s or p.requests_per_s or 0.0 for p in points), default=0.0)


def _memory(candidate: Candidate) -> int | None:
    sizes = [p.memory_bytes for p in candidate.measurement.points] if candidate.measurement else []
    known = [size for size in sizes if size is not None]
    return max(known, default=None)


def _better(candidate: Candidate, reference: Candidate) -> bool:
    if _throughput(candidate) > (1 + MARGIN) * _throughput(reference):
        return True
    mine, theirs = _memory(candidate), _memory(reference)
    return mine is not None and theirs is not None and mine < (1 - MARGIN) * theirs


def _reason(best: Candidate, reference: Candidate | None) -> str:
    if reference is None:
        return "the highest throughput of those that meet the SLO; the reference does not meet it"
    if best is reference:
        return "nothing that passed verification is faster or smaller than the original by 5 %: keep it"
    ratio = _throughput(best) / _throughput(reference) if _throughput(reference) else float("nan")
    words = [f"{units.show_ratio(ratio)} the reference's throughput"]
    mine, theirs = _memory(best), _memory(reference)
    if mine and theirs:
        words.append(f"{units.show_ratio(mine / theirs)} its memory")
    return f"{' at '.join(words)}, and it passed verification"


def _nothing_met(measured: Sequence[Candidate], slo: Slo) -> str:
    closest = min(measured, key=lambda c: len(violations(c, slo)))
    return f"no candidate met the SLO; closest was {closest.name}: {'; '.join(violations(closest, slo))}"

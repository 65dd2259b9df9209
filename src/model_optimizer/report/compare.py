"""Is B better than A, worse, or can it not be said? One verdict for each metric at each load.

With several runs of each side, or a level that was repeated (`--until-ci`), the noise between runs is
measured. With one run it is measured within: how far apart the stretches of that run were. Where a file holds
neither, a spread between runs is assumed, and said: a server that is measured twice gives two numbers, and a
gate that takes the difference for news cries wolf.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from model_optimizer.core import LoadPoint, Measurement, Percentiles, UsageError
from model_optimizer.core.welch import Ratio, Sample, needed, of_runs, ratio, t_quantile

from .comparable import key, pairs, reasons, same_terms

Change = Literal["better", "worse", "undecided"]

BETWEEN_RUNS = 0.03
"""Assumed standard deviation of the logarithm of a metric between two runs, where no file tells."""

_STRETCHES_FREEDOM = 9  # the error within a run is that of ten stretches

CONFIDENCE = 0.95
MARGIN = 0.03


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """How it is judged. A change below `margin` is never called better or worse. `between_runs` is added
    where there is one run of a side; None adds a spread only where none was measured. `force` compares what
    is not comparable."""

    confidence: float = CONFIDENCE
    margin: float = MARGIN
    between_runs: float | None = None
    force: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricChange:
    """One metric at one load. `ratio` is B over A, `interval` holds it at the stated confidence for all
    metrics together. `needed_runs` is how many runs of each side would
    tell a change of the margin."""

    metric: str
    load: str
    unit: str
    a: float | None
    b: float | None
    ratio: float | None
    interval: tuple[float, float] | None
    verdict: Change
    because: str
    within_margin: bool = False
    needed_runs: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CompareResult:
    """The answer: `verdict` is worse when anything is, else better when anything is. `not_comparable` holds
    the reasons that were overridden, `notes` what a reader should know."""

    verdict: Change
    changes: tuple[MetricChange, ...]
    runs_a: int
    runs_b: int
    not_comparable: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """What is read from a point: its value, and the standard error of its logarithm within one run (None
    where a run does not tell). `repeated` is its name in the intervals of a level that was repeated."""

    name: str
    unit: str
    higher_is_better: bool
    value: Callable[[LoadPoint], float | None]
    error: Callable[[LoadPoint], float | None]
    repeated: str | None = None


def compare(a: Sequence[Measurement], b: Sequence[Measurement], terms: Terms | None = None) -> CompareResult:
    """Compare runs of A with runs of B. UsageError with the reasons when they are not comparable."""
    terms = terms or Terms()
    if not a or not b:
        raise UsageError("both sides need a measurement")
    found = reasons(a, b)
    loads = [key(x) for x, _ in pairs(a[0], b[0])]
    loads = [k for k in loads if all(any(key(p) == k for p in one.points) for one in (*a, *b))]
    if not loads:
        have = [", ".join(p.target for p in side[0].points) or "nothing" for side in (a, b)]
        raise UsageError(
            "A and B have no load in common",
            cause=(f"A measured {have[0]}", f"B measured {have[1]}"),
            hint=("measure both at the same concurrency or rate",),
            reference="not-comparable",
        )
    if found and not terms.force:
        exact = "lengths without a tokenizer are estimates: `mopt bench --tokenizer PATH` makes them exact"
        estimated = any(reason.startswith("prompt tokens came out differently") for reason in found)
        raise UsageError(
            "A and B are not comparable",
            cause=found,
            hint=(*((exact,) if estimated else ()), "add --force to compare them all the same"),
            reference="not-comparable",
        )
    changes = _changes(a, b, loads, terms)
    return CompareResult(
        verdict=_overall(changes),
        changes=changes,
        runs_a=len(a),
        runs_b=len(b),
        not_comparable=found,
        notes=_notes(a, b, len(loads), terms),
    )


def _changes(
    a: Sequence[Measurement], b: Sequence[Measurement], loads: Sequence[object], terms: Terms
) -> tuple[MetricChange, ...]:
    vllm = any(one.made_by == "vllm bench serve" for one in (*a, *b))
    mixed = vllm and any(one.made_by is None for one in (*a, *b))
    sent = len({p.start for one in (*a, *b) for p in one.points}) > 1
    rows: list[tuple[Metric, str, list[LoadPoint], list[LoadPoint]]] = []
    for load in loads:
        left, right = (
            [same_terms(p, vllm=mixed, sent=sent) for one in side for p in one.points if key(p) == load]
            for side in (a, b)
        )
        for metric in _metrics():
            if all(_known(metric, p) for p in (*left, *right)):
                rows.append((metric, left[0].target, left, right))
    each = 1 - (1 - terms.confidence) / max(1, len(rows))
    decided = [_change(metric, load, left, right, each, terms) for metric, load, left, right in rows]
    failures = [
        _failures([p for one in a for p in one.points if key(p) == load],
                  [p for one in b for p in one.points if key(p) == load], terms)
        for load in loads
    ]  # fmt: skip
    return (*decided, *[f for f in failures if f is not None])


def _known(metric: Metric, point: LoadPoint) -> bool:
    value = metric.value(point)
    return value is not None and value > 0


def _change(
    metric: Metric,
    load: str,
    left: Sequence[LoadPoint],
    right: Sequence[LoadPoint],
    confidence: float,
    terms: Terms,
) -> MetricChange:
    a, b = _sample(metric, left, terms), _sample(metric, right, terms)
    found = ratio(a, b, confidence)
    verdict, because = _judged(metric, found, terms)
    more = needed(a, b, terms.margin, confidence) if verdict == "undecided" else None
    low, high = found.interval
    return MetricChange(
        metric=metric.name,
        load=load,
        unit=metric.unit,
        a=math.exp(a.log),
        b=math.exp(b.log),
        ratio=found.value,
        interval=found.interval,
        verdict=verdict,
        because=because,
        within_margin=low >= 1 / (1 + terms.margin) and high <= 1 + terms.margin,
        needed_runs=more,
    )


def _sample(metric: Metric, points: Sequence[LoadPoint], terms: Terms) -> Sample:
    """From several runs their own spread; from one that of its repetitions or of its stretches."""
    values = [v for p in points if (v := metric.value(p)) is not None]
    if len(values) > 1:
        return of_runs(values)
    point, log = points[0], math.log(values[0])
    width = point.half_widths.get(metric.repeated or "")
    if width is not None and point.runs > 1:
        error = width / t_quantile(0.975, point.runs - 1)
        each = error**2 * point.runs
        return Sample(log=log, variance=error**2, freedom=point.runs - 1, each=each, count=point.runs)
    within = metric.error(point)
    added = terms.between_runs
    if added is None:
        added = 0.0 if _measured(point) and within is not None else BETWEEN_RUNS
    each = (within or 0.0) ** 2 + added**2
    freedom = math.inf if added else _STRETCHES_FREEDOM
    return Sample(log=log, variance=each, freedom=freedom, each=each, count=1)


def _measured(point: LoadPoint) -> bool:
    """Whether the point says how far apart its stretches, or its repetitions, were."""
    return point.e2e_ms.mean_error is not None or bool(point.half_widths)


def _judged(metric: Metric, found: Ratio, terms: Terms) -> tuple[Change, str]:
    low, high = found.interval
    words = f"{_percent(found.value)} ({_percent(low)} to {_percent(high)})"
    apart = low > 1 or high < 1
    large = abs(math.log(found.value)) >= math.log1p(terms.margin)
    if apart and large:
        return ("better" if (found.value > 1) == metric.higher_is_better else "worse"), words
    if apart:
        return "undecided", f"{words}: there is a change, but less than the margin of {terms.margin:.0%}"
    return "undecided", f"{words}: no change is in the interval"


def _percent(value: float) -> str:
    return f"{value - 1:+.1%}"


# Metrics.


def _metrics() -> tuple[Metric, ...]:
    found = [
        Metric(
            name="requests/s",
            unit="1/s",
            higher_is_better=True,
            value=lambda p: p.requests_per_s,
            error=lambda p: _mean_error(p.e2e_ms, p.completed),
            repeated="requests_per_s",
        ),
        Metric(
            name="output tokens/s",
            unit="1/s",
            higher_is_better=True,
            value=lambda p: p.output_tokens_per_s,
            error=lambda p: _mean_error(p.e2e_ms, p.completed),
            repeated="output_tokens_per_s",
        ),
        Metric(
            name="goodput",
            unit="1/s",
            higher_is_better=True,
            value=lambda p: p.goodput_requests_per_s if p.attainment not in (None, 1.0) else None,
            error=lambda p: _share_error(p.attainment, p.completed + p.failed),
        ),
        Metric(
            name="energy per request",
            unit="J",
            higher_is_better=False,
            value=lambda p: p.energy_j / p.completed if p.energy_j and p.completed else None,
            error=lambda p: None,
        ),
    ]
    found += _latencies("TTFT", lambda p: p.ttft_ms)
    found += _latencies("TPOT", lambda p: p.tpot_ms)
    found += _latencies("E2E", lambda p: p.e2e_ms)
    return tuple(found)


def _latencies(name: str, read: Callable[[LoadPoint], Percentiles]) -> list[Metric]:
    return [
        Metric(
            name=f"{name} mean",
            unit="ms",
            higher_is_better=False,
            value=lambda p: read(p).mean,
            error=lambda p: _mean_error(read(p), p.completed),
        ),
        Metric(
            name=f"{name} p50",
            unit="ms",
            higher_is_better=False,
            value=lambda p: read(p).p50,
            error=lambda p: _largest(_interval_error(read(p).p50_ci), _mean_error(read(p), p.completed)),
            repeated=f"{name.lower()}_ms",
        ),
        Metric(
            name=f"{name} p99",
            unit="ms",
            higher_is_better=False,
            value=lambda p: read(p).p99,
            error=lambda p: _largest(_interval_error(read(p).p99_ci) or _tail_error(p), read(p).mean_error),
        ),
    ]


def _mean_error(values: Percentiles, count: int) -> float | None:
    if values.mean_error is not None:
        return values.mean_error
    if values.sd is None or not values.mean or count < 2:
        return _interval_error(values.p50_ci)
    return values.sd / values.mean / math.sqrt(count)


def _largest(*errors: float | None) -> float | None:
    return max((e for e in errors if e is not None), default=None)


def _interval_error(interval: tuple[float, float] | None) -> float | None:
    if interval is None or interval[0] <= 0:
        return None
    return math.log(interval[1] / interval[0]) / (2 * 1.96)


def _tail_error(point: LoadPoint) -> float:
    """A 99th percentile without an interval is from few requests: taken as uncertain by a fifth, and more
    where there are fewer than a hundred."""
    return 0.2 * max(1.0, math.sqrt(100 / max(1, point.completed)))


def _share_error(share: float | None, count: int) -> float | None:
    if not share or not count:
        return None
    return math.sqrt((1 - share) / (share * count))


def _failures(left: Sequence[LoadPoint], right: Sequence[LoadPoint], terms: Terms) -> MetricChange | None:
    """Shares of failed requests, by the normal interval of their difference with one added to each side
    (Agresti and Caffo)."""
    fa, fb = sum(p.failed for p in left), sum(p.failed for p in right)
    na, nb = fa + sum(p.completed for p in left), fb + sum(p.completed for p in right)
    if not fa and not fb:
        return None
    pa, pb = (fa + 1) / (na + 2), (fb + 1) / (nb + 2)
    reach = 1.96 * math.sqrt(pa * (1 - pa) / (na + 2) + pb * (1 - pb) / (nb + 2))
    low, high = pb - pa - reach, pb - pa + reach
    verdict: Change = "worse" if low > 0 else "better" if high < 0 else "undecided"
    return MetricChange(
        metric="failed requests",
        load=left[0].target,
        unit="share",
        a=fa / na if na else None,
        b=fb / nb if nb else None,
        ratio=None,
        interval=None,
        verdict=verdict,
        because=f"{fa} of {na} failed, now {fb} of {nb}",
    )


def _overall(changes: Sequence[MetricChange]) -> Change:
    verdicts = {change.verdict for change in changes}
    return "worse" if "worse" in verdicts else "better" if "better" in verdicts else "undecided"


def _notes(a: Sequence[Measurement], b: Sequence[Measurement], loads: int, terms: Terms) -> tuple[str, ...]:
    notes = [
        f"{name} was measured by a client near its limits: {one.client.because}"
        for name, side in (("A", a), ("B", b))
        for one in side
        if one.client.verdict == "marked"
    ]
    notes += _spread_notes(a, b, terms)
    skipped = [p.target for p in (*a[0].points, *b[0].points)]
    if len(skipped) > 2 * loads:
        notes.append(f"{len(skipped) - 2 * loads} loads are only on one side and were left out")
    if len({one.made_by for one in (*a, *b)}) > 1:
        notes.append("one side is from another tool: both are compared under vLLM's definitions")
    if len({p.start for one in (*a, *b) for p in one.points}) > 1:
        notes.append("times begin when requests were sent, for one side has no others")
    return tuple(notes)


def _spread_notes(a: Sequence[Measurement], b: Sequence[Measurement], terms: Terms) -> list[str]:
    """Where the spread was taken from, when a side has one run."""
    single = [side[0] for side in (a, b) if len(side) == 1]
    points = [point for one in single for point in one.points if point.runs == 1]
    if not points:
        return []
    more = "a folder with several runs of each, or `mopt bench --until-ci`, measures that"
    if terms.between_runs is not None:
        return [
            f"one run of a side: a spread of {terms.between_runs:.0%} between runs is added as asked; {more}"
        ]
    if not all(map(_measured, points)):
        return [
            f"one run of a side: a spread of {BETWEEN_RUNS:.0%} between runs is assumed where the file "
            f"tells none; {more}"
        ]
    return [
        "one run of a side: the spread is that between stretches of the run; what changes from run to run is "
        f"not in it; {more}"
    ]

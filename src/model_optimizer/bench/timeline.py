"""Requests joined with what was recorded beside them, on one clock: energy, queue waits, and what happened
at a spike. Pure functions of outcomes and a timeline."""

from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median

from model_optimizer.system.telemetry import Event, Series, Timeline
from model_optimizer.system.telemetry.nvml import slowed_by

from .exchange import Outcome
from .latency import ttft_ms
from .percentiles import quantile

_LEAST = 20  # requests of a class before anything is said about it
_RATIO = 4.0
_OVERTAKEN = 5.0
_LEAST_WAIT_MS = 20.0
_FLOOR = 0.05
_CLASSES = 4
COUNTERS = frozenset(
    {"energy_j", "nvlink_tx_bytes", "nvlink_rx_bytes", "ecc_corrected", "ecc_uncorrected", "preemptions"}
    | {"prompt_tokens", "output_tokens", "prefix_hits", "prefix_queries", "requests"}
)
_NO_QUESTION = frozenset({"slowed_by", "started_s"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """One level of load: its requests, and the window in which they count."""

    title: str
    outcomes: Sequence[Outcome]
    begin_ns: int
    end_ns: int
    open_loop: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Energy:
    """Joules of all GPUs in a window. `above_idle_j` leaves out what they would have drawn doing nothing."""

    joules: float | None = None
    source: str = "not available"
    above_idle_j: float | None = None
    j_per_token: float | None = None
    j_per_request: float | None = None
    power_w: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitClass:
    """Requests with prompts of `shortest` to `longest` tokens. A wait is TTFT less the fastest of its class
    (5th percentile), which stands for a request that did not wait. `overtaken` is how many requests that
    were sent later had their first token earlier, on average."""

    shortest: int
    longest: int
    requests: int
    fastest_ttft_ms: float | None = None
    wait_p50_ms: float | None = None
    wait_p90_ms: float | None = None
    wait_p99_ms: float | None = None
    overtaken: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Queue:
    """`verdict` is `fair`, `starved` or `undecided`; `engine_mean_ms` is the engine's own mean wait."""

    verdict: str
    because: str
    classes: tuple[WaitClass, ...] = ()
    engine_mean_ms: float | None = None


# Energy.


def energy(timeline: Timeline, span: Span, idle_w: float | None) -> Energy:
    """From the GPUs' energy counters where all have one, else from their power, integrated."""
    begin, end = span.begin_ns, span.end_ns
    joules, source = _sum([s.rise(begin, end) for s in timeline.named("energy_j")]), "NVML energy counter"
    if joules is None:
        joules = _sum([s.integral(begin, end) for s in timeline.named("power_w")])
        source = "NVML power, integrated"
    if joules is None:
        return Energy()
    seconds = (end - begin) / 1e9
    tokens = sum(_tokens_inside(o, span) for o in span.outcomes if o.completed)
    requests = sum(begin < o.last_ns <= end for o in span.outcomes if o.completed)
    return Energy(
        joules=joules,
        source=source,
        above_idle_j=joules - idle_w * seconds if idle_w is not None else None,
        j_per_token=joules / tokens if tokens else None,
        j_per_request=joules / requests if requests else None,
        power_w=joules / seconds if seconds > 0 else None,
    )


def idle_power_w(timeline: Timeline, begin_ns: int, end_ns: int) -> float | None:
    """Mean power of all GPUs together while no load was offered yet."""
    return _sum([series.mean(begin_ns, end_ns) for series in timeline.named("power_w")])


def _tokens_inside(outcome: Outcome, span: Span) -> float:
    times = outcome.token_ns or (outcome.finished_ns,)
    inside = sum(span.begin_ns < t <= span.end_ns for t in times)
    return (outcome.tokens or 0) * inside / len(times)


def _sum(values: Sequence[float | None]) -> float | None:
    known = [v for v in values if v is not None]
    return sum(known) if known and len(known) == len(values) else None


# Queue waits.


def queue(timeline: Timeline, span: Span) -> Queue:
    """Waits by class of prompt length, and whether one class starves."""
    own = _engine_wait_ms(timeline, span)
    asked = [o for o in span.outcomes if o.measured and o.completed and _first(o, span) is not None]
    if len(asked) < _LEAST:
        return Queue(
            verdict="undecided", because=f"{len(asked)} streamed answers are too few", engine_mean_ms=own
        )
    overtaken = _overtakes(asked, span)
    groups = _grouped(asked)
    waits = {key: _waits(members, span) for key, members in groups.items()}
    classes = tuple(
        _wait_class(key, members, waits[key], overtaken, span) for key, members in sorted(groups.items())
    )
    verdict, because = _starvation(classes)
    return Queue(verdict=verdict, because=because, classes=classes, engine_mean_ms=own)


def _first(outcome: Outcome, span: Span) -> float | None:
    return ttft_ms(outcome, scheduled=span.open_loop)


def _length(outcome: Outcome) -> int:
    return outcome.prompt_tokens or outcome.wanted_prompt_tokens or 0


def _grouped(asked: Sequence[Outcome]) -> dict[tuple[int, int], list[Outcome]]:
    """By length where there are few lengths, else by quarters of the requests."""
    lengths = sorted({_length(o) for o in asked})
    if len(lengths) > _CLASSES:
        ordered = sorted(_length(o) for o in asked)
        edges = sorted({ordered[len(ordered) * q // _CLASSES] for q in range(1, _CLASSES)})
    else:
        edges = lengths[1:]
    groups: defaultdict[int, list[Outcome]] = defaultdict(list)
    for outcome in asked:
        groups[bisect_left(edges, _length(outcome) + 1)].append(outcome)
    return {(min(map(_length, g)), max(map(_length, g))): g for g in groups.values()}


def _waits(members: Sequence[Outcome], span: Span) -> list[float]:
    first = [t for o in members if (t := _first(o, span)) is not None]
    floor = quantile(first, _FLOOR) or 0.0
    return [max(0.0, t - floor) for t in first]


def _wait_class(
    key: tuple[int, int],
    members: Sequence[Outcome],
    waits: Sequence[float],
    overtaken: Mapping[int, int],
    span: Span,
) -> WaitClass:
    first = [t for o in members if (t := _first(o, span)) is not None]
    return WaitClass(
        shortest=key[0],
        longest=key[1],
        requests=len(members),
        fastest_ttft_ms=quantile(first, _FLOOR),
        wait_p50_ms=quantile(waits, 0.5),
        wait_p90_ms=quantile(waits, 0.9),
        wait_p99_ms=quantile(waits, 0.99),
        overtaken=fmean(overtaken[o.index] for o in members),
    )


def _overtakes(asked: Sequence[Outcome], span: Span) -> dict[int, int]:
    """For each request, how many that began later had their first token earlier."""

    def begun(outcome: Outcome) -> int:
        return outcome.scheduled_ns if span.open_loop or outcome.sent_ns is None else outcome.sent_ns

    seen: list[int] = []
    found: dict[int, int] = {}
    for outcome in sorted(asked, key=begun, reverse=True):
        found[outcome.index] = bisect_left(seen, outcome.token_ns[0])
        insort(seen, outcome.token_ns[0])
    return found


def _starvation(classes: Sequence[WaitClass]) -> tuple[str, str]:
    if len(classes) < 2:
        return "fair", "all prompts are of one length"
    if small := [c for c in classes if c.requests < _LEAST]:
        return "undecided", f"{small[0].requests} prompts of {_range(small[0])} are too few"
    for one in classes:
        others = max((c.wait_p90_ms or 0.0) for c in classes if c is not one)
        wait = one.wait_p90_ms or 0.0
        late = (one.overtaken or 0.0) >= _OVERTAKEN
        if late and wait > _LEAST_WAIT_MS and wait > _RATIO * max(others, _LEAST_WAIT_MS / _RATIO):
            return "starved", (
                f"prompts of {_range(one)} wait {wait:.0f} ms (p90), others {others:.0f} ms at most, and "
                f"{one.overtaken:.0f} later requests overtake each on average"
            )
    return "fair", f"no class waits more than {_RATIO:g} times as long as the others and is overtaken"


def _range(one: WaitClass) -> str:
    if one.shortest == one.longest:
        return f"{one.shortest} tokens"
    return f"{one.shortest} to {one.longest} tokens"


def _engine_wait_ms(timeline: Timeline, span: Span) -> float | None:
    total = timeline.series.get("engine.queue_s_sum")
    count = timeline.series.get("engine.queue_s_count")
    if total is None or count is None:
        return None
    seconds, requests = (s.rise(span.begin_ns, span.end_ns) for s in (total, count))
    return seconds / requests * 1000 if seconds is not None and requests else None


# What happened at a spike.


@dataclass(frozen=True, slots=True, kw_only=True)
class Oddity:
    """A quantity that was unusual at some moment: what it was, what it is otherwise, and how far that is
    in robust standard deviations."""

    name: str
    value: float
    usual: float
    sigmas: float


def happened(
    timeline: Timeline, outcomes: Sequence[Outcome], at_ns: int, *, within_s: float = 1.0
) -> tuple[str, ...]:
    """What was unusual around a moment, the strongest first: events, slowed clocks, quantities that were
    far from what they are otherwise, requests in flight."""
    around = (at_ns - round(within_s * 1e9), at_ns + round(within_s * 1e9))
    lines = [e.text for e in timeline.events if around[0] <= e.time_ns <= around[1]]
    lines += _slowed(timeline, around)
    odd = sorted(_oddities(timeline, outcomes, around), key=lambda o: -o.sigmas)
    lines += [f"{o.name} was {o.value:.4g}, usually {o.usual:.4g}" for o in odd[:5]]
    return tuple(lines)


def _slowed(timeline: Timeline, around: tuple[int, int]) -> list[str]:
    """What slowed a GPU then, and not most of the time anyhow."""
    lines: list[str] = []
    for name, series in timeline.series.items():
        if not name.endswith(".slowed_by"):
            continue
        always = [set(slowed_by(int(v))) for v in series.values]
        then = {r for v in series.between(*around).values for r in slowed_by(int(v))}
        unusual = sorted(r for r in then if sum(r in reasons for reasons in always) < len(always) / 2)
        if unusual:
            lines.append(f"{name.partition('.')[0]} was slowed by {', '.join(unusual)}")
    return lines


def _oddities(timeline: Timeline, outcomes: Sequence[Outcome], around: tuple[int, int]) -> list[Oddity]:
    found: list[Oddity] = []
    for name, series in timeline.series.items():
        quantity = name.partition(".")[2]
        if quantity in _NO_QUESTION:
            continue
        if quantity in COUNTERS or quantity.endswith(("_sum", "_count")):
            name, series = f"{name} per second", rates(series)
        if odd := _odd(name, series, around):
            found.append(odd)
    if flying := in_flight(outcomes):
        found += [odd] if (odd := _odd("requests in flight", flying, around)) else []
    return found


def _odd(name: str, series: Series, around: tuple[int, int]) -> Oddity | None:
    """The value around that moment that is farthest from the median, if it lies beyond the middle eight
    tenths of all values and more than four robust standard deviations away."""
    part = series.between(*around).values
    if not part or len(series.values) < 8:
        return None
    usual = median(series.values)
    here = max(part, key=lambda v: abs(v - usual))
    low, high = quantile(series.values, 0.1), quantile(series.values, 0.9)
    if low is None or high is None or low <= here <= high:
        return None
    spread = 1.4826 * median(abs(v - usual) for v in series.values)
    sigmas = abs(here - usual) / max(spread, 0.05 * abs(usual), 1e-9)
    return Oddity(name=name, value=here, usual=usual, sigmas=sigmas) if sigmas > 4 else None


def rates(series: Series) -> Series:
    """A counter as rates per second, each at the later of two readings."""
    times: list[int] = []
    values: list[float] = []
    for i in range(1, len(series.values)):
        seconds = (series.times_ns[i] - series.times_ns[i - 1]) / 1e9
        if seconds > 0 and series.values[i] >= series.values[i - 1]:
            times.append(series.times_ns[i])
            values.append((series.values[i] - series.values[i - 1]) / seconds)
    return Series(times_ns=times, values=values)


def in_flight(outcomes: Sequence[Outcome], step_s: float = 0.25) -> Series | None:
    """How many requests were under way, sampled at even steps."""
    spans = [(o.sent_ns, o.finished_ns) for o in outcomes if o.sent_ns is not None]
    if not spans:
        return None
    begins, ends = sorted(b for b, _ in spans), sorted(e for _, e in spans)
    step = max(round(step_s * 1e9), (ends[-1] - begins[0]) // 2000, 1)
    times = list(range(begins[0], ends[-1] + 1, step))
    values = [float(bisect_left(begins, t + 1) - bisect_left(ends, t + 1)) for t in times]
    return Series(times_ns=times, values=values)


def spikes(
    timeline: Timeline, span: Span, *, most: int = 3, apart_s: float = 2.0
) -> list[tuple[Outcome, tuple[str, ...]]]:
    """The slowest first tokens that stand out (more than twice the 90th percentile), each with what was
    unusual when it came; only one in every `apart_s`."""
    known = [(t, o) for o in span.outcomes if o.completed and (t := _first(o, span)) is not None]
    limit = 2 * (quantile([t for t, _ in known], 0.9) or 0.0)
    chosen: list[tuple[Outcome, tuple[str, ...]]] = []
    for first, outcome in sorted(known, key=lambda pair: -pair[0]):
        if first <= limit or len(chosen) == most:
            break
        at = outcome.token_ns[0]
        if all(abs(at - o.token_ns[0]) > apart_s * 1e9 for o, _ in chosen):
            middle = at - round(first * 1e6 / 2)
            within = max(1.0, first / 2000)
            chosen.append((outcome, happened(timeline, span.outcomes, middle, within_s=within)))
    return chosen


def fatal(timeline: Timeline, spans: Sequence[Span]) -> Event | None:
    """A fatal event before the end of the load; one that came later changes nothing measured."""
    end = max((s.end_ns for s in spans), default=None)
    event = timeline.fatal
    return event if event is not None and (end is None or event.time_ns <= end) else None

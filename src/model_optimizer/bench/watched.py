"""A measurement completed by what was recorded beside it: the `telemetry` block, and whether it counts."""

import os
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean
from time import perf_counter_ns, sleep
from types import TracebackType

import msgspec

from model_optimizer.core import LoadPoint, Measurement
from model_optimizer.system.telemetry import Event, Series, Timeline, Watch, What, gpu_energy
from model_optimizer.system.telemetry.host import machine
from model_optimizer.system.telemetry.nvml import slowed_by

from . import timeline as joined
from .latency import e2e_ms, tpot_ms, ttft_ms
from .level import Driven
from .percentiles import quantile
from .target import Target, is_here
from .timeline import Span
from .window import window

_IDLE_S = 1.0
_POINTS = 240
_QUANTILES = tuple(range(0, 101, 2))


@dataclass(slots=True)
class Seen:
    """Collects each level as it was driven: `measure` calls it. `idle` waits a moment before the load."""

    spans: list[Span] = field(default_factory=list[Span])
    idle_ns: tuple[int, int] | None = None

    def __call__(self, driven: Driven) -> None:
        span = window(driven)
        self.spans.append(
            Span(
                title=driven.level.title,
                outcomes=driven.outcomes,
                begin_ns=span.begin_ns,
                end_ns=span.end_ns,
                open_loop=driven.level.arrivals != "closed",
            )
        )

    def idle(self, seconds: float = _IDLE_S) -> None:
        """Let the GPUs be, so that their idle power is known."""
        begin = perf_counter_ns()
        sleep(seconds)
        self.idle_ns = (begin, perf_counter_ns())


class Recording:
    """Records while it is entered, from a process of its own. Where the server is on another machine, only
    its metrics page and this machine's processor are looked at. `gpus` False leaves out those of this
    machine, for a server that does not use them.

    A GPU that fails ends the load as Ctrl-C would, and the result is marked invalid. `seen` is what
    `measure` is handed as `observe`; `complete` puts both together afterwards.
    """

    def __init__(
        self,
        target: Target,
        *,
        pid: int | None = None,
        engine_version: str | None = None,
        gpus: bool = True,
    ) -> None:
        here = is_here(target.url)
        gpus = gpus and here
        what = What(
            url=target.url,
            pid=pid,
            engine_version=engine_version,
            key_env=target.api_key_env,
            gpus=gpus,
            kernel=here,
        )
        self.seen = Seen()
        self._watch = Watch(what, on_fatal=self._stop)
        self._gpus = gpus and gpu_energy() is not None
        self._machine = machine() if here else None
        self._entered = False
        self._ended_by: Event | None = None

    def __enter__(self) -> "Recording":
        self._watch.__enter__()
        self._entered = True
        if self._gpus:
            self.seen.idle()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._entered = False
        self._watch.__exit__(kind, error, trace)

    def complete(self, found: Measurement) -> Measurement:
        """The measurement with what was recorded."""
        done = watched(found, self._watch.timeline, self.seen, ended_by=self._ended_by)
        return replace(done, telemetry={"machine": self._machine, **done.telemetry})

    def _stop(self, event: Event) -> None:
        if self._entered:
            self._ended_by = event
            os.kill(os.getpid(), signal.SIGINT)


def watched(
    found: Measurement, timeline: Timeline, seen: Seen, *, ended_by: Event | None = None
) -> Measurement:
    """The measurement with its telemetry; `invalid` when a GPU failed while it ran. `ended_by` is the event
    that ended the load, where one did: it was not the user who interrupted it then."""
    event = ended_by or joined.fatal(timeline, seen.spans)
    idle = joined.idle_power_w(timeline, *seen.idle_ns) if seen.idle_ns else None
    energies = [joined.energy(timeline, span, idle) for span in seen.spans]
    points = tuple(_with_energy(point, seen.spans, energies) for point in found.points)
    return replace(
        found,
        points=points,
        telemetry={**found.telemetry, **_block(timeline, seen, energies, idle)},
        interrupted=found.interrupted and ended_by is None,
        invalid=f"{event.kind}: {event.text}" if event else found.invalid,
        notes=(*found.notes, *((f"INVALID: {event.text}",) if event else ())),
    )


def _with_energy(point: LoadPoint, spans: Sequence[Span], energies: Sequence[joined.Energy]) -> LoadPoint:
    """The energy of the last run of that level, where the point has none of its own."""
    own = [e for s, e in zip(spans, energies, strict=True) if s.title == point.target]
    if point.energy_j is not None or not own or own[-1].joules is None:
        return point
    return replace(point, energy_j=own[-1].joules, energy_source=own[-1].source)


def _block(
    timeline: Timeline, seen: Seen, energies: Sequence[joined.Energy], idle: float | None
) -> dict[str, object]:
    origin = min((s.begin_ns for s in seen.spans), default=0)
    return {
        "idle_power_w": idle,
        "missing": dict(timeline.missing),
        "events": [_event(e, origin) for e in timeline.events],
        "loads": [
            _load(timeline, span, energy, origin) for span, energy in zip(seen.spans, energies, strict=True)
        ],
        "series": {n: _thin(s, origin) for n, s in sorted(_shown(timeline, seen).items())},
    }


def _event(event: Event, origin: int) -> dict[str, object]:
    at = round((event.time_ns - origin) / 1e9, 3)
    return {"time_s": at, "kind": event.kind, "text": event.text, "fatal": event.fatal}


def _load(timeline: Timeline, span: Span, energy: joined.Energy, origin: int) -> dict[str, object]:
    """One level: energy, queue, means of every series, what slowed the clocks, the distribution, spikes."""
    return {
        "target": span.title,
        "begin_s": round((span.begin_ns - origin) / 1e9, 3),
        "end_s": round((span.end_ns - origin) / 1e9, 3),
        "energy": msgspec.to_builtins(energy),
        "queue": msgspec.to_builtins(joined.queue(timeline, span)),
        "means": _means(timeline, span),
        "slowed_by": _slowed(timeline, span),
        "quantiles": _distribution(span),
        "spikes": [
            {
                "time_s": round((outcome.token_ns[0] - origin) / 1e9, 3),
                "ttft_ms": ttft_ms(outcome, scheduled=span.open_loop),
                "prompt_tokens": outcome.prompt_tokens or outcome.wanted_prompt_tokens,
                "what": list(what) or ["nothing else that was recorded was unusual"],
            }
            for outcome, what in joined.spikes(timeline, span)
        ],
    }


def _means(timeline: Timeline, span: Span) -> dict[str, float]:
    """Means of what is level, rates of what counts up."""
    found: dict[str, float] = {}
    for name, series in timeline.series.items():
        quantity = name.partition(".")[2]
        if quantity in joined.COUNTERS:
            rise = series.rise(span.begin_ns, span.end_ns)
            if rise is not None and span.end_ns > span.begin_ns:
                found[f"{name}_per_s"] = rise / ((span.end_ns - span.begin_ns) / 1e9)
        elif not quantity.endswith(("_sum", "_count", "slowed_by", "started_s")):
            value = series.mean(span.begin_ns, span.end_ns)
            if value is not None:
                found[name] = value
    return found


def _slowed(timeline: Timeline, span: Span) -> dict[str, float]:
    """For each reason, the share of readings at which it slowed a GPU's clocks."""
    shares: dict[str, list[float]] = {}
    for series in timeline.named("slowed_by"):
        part = [slowed_by(int(v)) for v in series.between(span.begin_ns, span.end_ns).values]
        for reason in {r for reasons in part for r in reasons}:
            shares.setdefault(reason, []).append(fmean(reason in reasons for reasons in part))
    return {reason: max(values) for reason, values in shares.items()}


def _distribution(span: Span) -> dict[str, list[float]]:
    """Every second percent of the latencies of completed requests: enough to draw them."""
    done = [o for o in span.outcomes if o.measured and o.completed]
    values = {
        "ttft_ms": [t for o in done if (t := ttft_ms(o, scheduled=span.open_loop)) is not None],
        "tpot_ms": [t for o in done if (t := tpot_ms(o)) is not None],
        "e2e_ms": [e2e_ms(o, scheduled=span.open_loop) for o in done],
    }
    return {name: [_round(quantile(v, q / 100)) for q in _QUANTILES] for name, v in values.items() if v}


def _shown(timeline: Timeline, seen: Seen) -> Mapping[str, Series]:
    """The series that are kept; requests in flight and their first tokens are two of them."""
    outcomes = [o for span in seen.spans for o in span.outcomes]
    series = {n: s for n, s in timeline.series.items() if not n.endswith(".started_s")}
    if (flying := joined.in_flight(outcomes)) is not None:
        series["client.in_flight"] = flying
    first = sorted(
        (o.token_ns[0], t)
        for span in seen.spans
        for o in span.outcomes
        if o.completed and (t := ttft_ms(o, scheduled=span.open_loop)) is not None
    )
    if first:
        series["client.ttft_ms"] = Series(times_ns=[t for t, _ in first], values=[v for _, v in first])
    return series


def _thin(series: Series, origin: int) -> dict[str, list[float]]:
    """At most some 240 pairs of time and value: of each stretch the largest, so that no peak is lost."""
    count = len(series.values)
    step = max(1, -(-count // _POINTS))
    times: list[float] = []
    values: list[float] = []
    for begin in range(0, count, step):
        part = range(begin, min(count, begin + step))
        top = max(part, key=lambda i: series.values[i])
        times.append(round((series.times_ns[top] - origin) / 1e9, 3))
        values.append(_round(series.values[top]))
    return {"time_s": times, "value": values}


def _round(value: float | None) -> float:
    return float(f"{value or 0.0:.6g}")


def kept(found: Measurement) -> Timeline:
    """The timeline that a measurement carries, thinned as it is; empty where it has none. The load began at
    0 ns."""
    try:
        block = msgspec.convert(dict(found.telemetry), _Kept)
    except msgspec.ValidationError:
        return Timeline()
    series = {
        name: Series(times_ns=[round(t * 1e9) for t in one.time_s], values=one.value)
        for name, one in block.series.items()
        if len(one.time_s) == len(one.value)
    }
    events = [
        Event(time_ns=round(e.time_s * 1e9), kind=e.kind, text=e.text, fatal=e.fatal) for e in block.events
    ]
    return Timeline(series=series, events=events, missing=block.missing)


class _KeptSeries(msgspec.Struct):
    time_s: list[float]
    value: list[float]


class _KeptEvent(msgspec.Struct):
    time_s: float
    kind: str
    text: str
    fatal: bool = False


class _Kept(msgspec.Struct):
    series: dict[str, _KeptSeries] = {}
    events: list[_KeptEvent] = []
    missing: dict[str, str] = {}

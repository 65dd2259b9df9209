"""The pictures that people expect of a load test, made from measurements."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import cast

from model_optimizer.core import LoadPoint, Measurement, units

from .plot import Axis, Line, legend, plot

_QUANTITIES = (
    ("ttft_ms", "Time to first token"),
    ("tpot_ms", "Time per output token"),
    ("e2e_ms", "Whole request"),
)
_DISTRIBUTIONS = tuple((name, title) for name, title in _QUANTITIES if name != "tpot_ms")
_WITH_TAILS = 2  # more lines than four are no picture any more
_MIB = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """`svg` is safe HTML made by us; title and note are plain text."""

    title: str
    note: str
    svg: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Named:
    """A measurement and what it is called in pictures with several."""

    name: str
    measurement: Measurement


def figures(named: Sequence[Named]) -> tuple[Figure, ...]:
    """Those that put all measurements side by side: against load, the Pareto front, and distributions of
    each at its highest load where there are several."""
    found = [*_against_load(named), _pareto(named)]
    if len(named) > 1:
        found += _side_by_side(named)
    return tuple(figure for figure in found if figure is not None)


def own_figures(one: Named) -> tuple[Figure, ...]:
    """Those of one measurement: the distributions at each load, and its timeline."""
    return (*_distributions(one), *timeline(one))


# Against load.


def _against_load(named: Sequence[Named]) -> list[Figure]:
    made: list[Figure] = []
    shares = ("p50", "p99") if len(named) <= _WITH_TAILS else ("p50",)
    for attribute, title in _QUANTITIES:
        lines: list[Line] = []
        for index, one in enumerate(named):
            for share in shares:
                points = [
                    (load, value)
                    for p in one.measurement.points
                    if (load := _load(p)) is not None
                    and (value := getattr(getattr(p, attribute), share)) is not None
                ]
                name = one.name if len(shares) == 1 else f"{one.name}, {share.upper()}"
                name = share.upper() if len(named) == 1 else name
                lines.append(
                    Line(
                        name=name,
                        points=sorted(points),
                        style="both",
                        titles=[f"{name}: {units.show_ms(v)} at {load:g}" for load, v in sorted(points)],
                        colour=index,
                        dashed=share == "p99",
                    )
                )
        lines = [line for line in lines if line.points]
        if any(len(line.points) > 1 for line in lines):
            x, y = _load_axis(named, lines), _time_axis(lines)
            svg = plot(lines, x, y, title=f"{title} against load")
            note = "median and 99th percentile" if len(shares) > 1 else "median"
            note += "; a percentile that falls on a failed request is left out"
            note += "; logarithmic scale" if y.log else ""
            made.append(Figure(title=f"{title} against load", note=note, svg=svg + legend(lines)))
    return made


def _load(point: LoadPoint) -> float | None:
    return point.qps if point.qps is not None else point.concurrency


def _load_axis(named: Sequence[Named], lines: Sequence[Line]) -> Axis:
    rates = any(p.qps is not None for one in named for p in one.measurement.points)
    values = [p[0] for line in lines for p in line.points]
    wide = max(values) / max(1e-9, min(values)) > 20
    return Axis(title="requests per second" if rates else "requests in flight", log=wide, show=_short)


def _time_axis(lines: Sequence[Line]) -> Axis:
    values = [p[1] for line in lines for p in line.points if p[1] > 0]
    wide = bool(values) and max(values) / min(values) > 50
    return Axis(title="", log=wide, show=_ms)


def _pareto(named: Sequence[Named]) -> Figure | None:
    lines: list[Line] = []
    for index, one in enumerate(named):
        rows = [
            (latency, speed, p.target) for p in one.measurement.points
            if (latency := p.e2e_ms.p50) is not None and (speed := _speed(p)) is not None
        ]  # fmt: skip
        if not rows:
            continue
        lines.append(
            Line(
                name=one.name,
                points=[(latency, speed) for latency, speed, _ in rows],
                style="both",
                titles=[f"{t}: {units.show_ms(x)}, {_short(s)}/s" for x, s, t in rows],
                colour=index,
            )
        )
    if sum(len(line.points) for line in lines) < 2:
        return None
    tokens = any(p.output_tokens_per_s for one in named for p in one.measurement.points)
    y = Axis(title="", show=_short)
    times = [x for line in lines for x, _ in line.points if x > 0]
    wide = bool(times) and max(times) / min(times) > 20
    x = Axis(title="median of the whole request", show=_ms, log=wide)
    title = f"{'Output tokens' if tokens else 'Requests'} per second against latency"
    note = "up and to the left is better; each dot is one load" + ("; logarithmic scale" if wide else "")
    return Figure(title=title, note=note, svg=plot(lines, x, y, title=title) + legend(lines))


def _speed(point: LoadPoint) -> float | None:
    return point.output_tokens_per_s or point.requests_per_s


# Distributions.


def _side_by_side(named: Sequence[Named]) -> list[Figure]:
    """One line for each measurement, at the highest load that it was measured at."""
    made: list[Figure] = []
    for attribute, title in _DISTRIBUTIONS:
        lines: list[Line] = []
        for index, one in enumerate(named):
            top = max(one.measurement.points, key=lambda p: _load(p) or 0.0)
            line = _distribution(one.measurement, top, attribute, index)
            if line is not None:
                lines.append(replace(line, name=f"{one.name}, {top.target}"))
        made += _distribution_figure(lines, title, "at its highest load")
    return made


def _distributions(one: Named) -> list[Figure]:
    """Cumulative shares of requests. Without the kept quantiles, the percentiles that are known."""
    made: list[Figure] = []
    for attribute, title in _DISTRIBUTIONS:
        lines = [
            line
            for index, point in enumerate(one.measurement.points[:6])
            if (line := _distribution(one.measurement, point, attribute, index)) is not None
        ]
        made += _distribution_figure(lines, title)
    return made


def _distribution_figure(lines: Sequence[Line], title: str, which: str = "") -> list[Figure]:
    if not lines:
        return []
    values = [p[0] for line in lines for p in line.points if p[0] > 0]
    wide = bool(values) and max(values) / min(values) > 50
    begins = None if wide or not values else 0.95 * min(values)
    x = Axis(title=title.lower(), log=wide, show=_ms, begins=begins)
    y = Axis(title="", show=lambda v: f"{v:.0%}", begins=0, ends=1)
    whole = f"Distribution: {title.lower()}" + (f", each {which}" if which else "")
    dots = all(line.style == "dots" for line in lines)
    note = "the share of completed requests that took at most so long"
    note += "; only three percentiles are in the file" if dots else ""
    note += "; logarithmic scale" if wide else ""
    return [Figure(title=whole, note=note, svg=plot(lines, x, y, title=whole) + legend(lines))]


def _distribution(found: Measurement, point: LoadPoint, attribute: str, index: int) -> Line | None:
    quantiles = _quantiles(found, point.target, attribute)
    if quantiles:
        steps = [(value, i / (len(quantiles) - 1)) for i, value in enumerate(quantiles)]
        return Line(name=point.target, points=steps, colour=index)
    known = getattr(point, attribute)
    marks = [(v, q) for v, q in ((known.p50, 0.5), (known.p90, 0.9), (known.p99, 0.99)) if v is not None]
    if not marks:
        return None
    titles = [f"P{100 * q:g}: {units.show_ms(v)}" for v, q in marks]
    return Line(name=point.target, points=marks, style="dots", titles=titles, colour=index)


def _quantiles(found: Measurement, target: str, attribute: str) -> list[float]:
    """What the telemetry block keeps; anything else there is not ours and is left alone."""
    loads = found.telemetry.get("loads")
    for load in cast("list[object]", loads) if isinstance(loads, list) else []:
        if not isinstance(load, dict):
            continue
        row = cast("Mapping[str, object]", load)
        kept = row.get("quantiles")
        if row.get("target") == target and isinstance(kept, dict):
            return _numbers(cast("Mapping[str, object]", kept).get(attribute))
    return []


def _numbers(value: object) -> list[float]:
    if not isinstance(value, list):
        return []
    rows = cast("list[object]", value)
    return [float(v) for v in rows if isinstance(v, int | float)]


# Timelines.

_PANELS = (
    ("client.ttft_ms", "Time to first token, each request", "dots"),
    ("client.in_flight", "Requests in flight", "line"),
    ("engine.running", "Requests in the engine's batch", "line"),
    ("engine.waiting", "Requests in the engine's queue", "line"),
    ("engine.kv_usage", "KV cache in use", "line"),
    (".power_w", "GPU power", "line"),
    (".sm_clock_mhz", "GPU clock", "line"),
    (".utilization_percent", "GPU utilization", "line"),
    (".memory_used_bytes", "GPU memory", "line"),
    (".temperature_c", "GPU temperature", "line"),
    ("server.rss_bytes", "Memory of the server's process", "line"),
    ("host.cpu_percent", "Processor of this machine", "line"),
)


def timeline(one: Named) -> list[Figure]:
    """A small picture for each quantity that was recorded, all over the same time."""
    kept = one.measurement.telemetry.get("series")
    if not isinstance(kept, dict) or not kept:
        return []
    series = cast("Mapping[str, object]", kept)
    marks = _events(one.measurement)
    times = [time for value in series.values() for time, _ in _pairs(value)]
    x = Axis(
        title="seconds since the load began",
        begins=min(0.0, min(times, default=0.0)),
        ends=max(times, default=0.0) or 1e-3,
    )
    made: list[Figure] = []
    for ending, title, style in _PANELS:
        names = [n for n in sorted(series) if n == ending or (ending[0] == "." and _of_gpu(n, ending))]
        lines = [
            Line(
                name=name.partition(".")[0],
                points=_pairs(series[name]),
                style="dots" if style == "dots" else "line",
                colour=index,
            )
            for index, name in enumerate(names)
        ]
        lines = [line for line in lines if line.points]
        if lines:
            unit, lines = _scaled(ending, lines)
            svg = plot(lines, x, _unit_axis(ending, unit, lines), title=title, height=170, marks=marks)
            note = "an upright line marks an event" if marks else ""
            made.append(Figure(title=title, note=note, svg=svg + legend(lines)))
    return made


def over_time(
    title: str,
    unit: str,
    points: Sequence[tuple[float, float]],
    *,
    end: float,
    marks: Sequence[float] = (),
) -> Figure:
    """One quantity over hours (or minutes, where there are few), as dots joined by a line."""
    factor, name = (1.0, "hours") if end >= 3 else (60.0, "minutes") if end * 60 >= 3 else (3600.0, "seconds")
    ending = {"B": "_bytes", "ms": "_ms", "share": "engine.kv_usage"}.get(unit, "")
    line = Line(name=title, points=[(t * factor, v) for t, v in points])
    shown, lines = _scaled(ending, [line])
    x = Axis(title=f"{name} since it began", begins=0.0, ends=max(end * factor, 1e-3))
    y = _unit_axis(ending, shown, lines)
    svg = plot(lines, x, y, title=title, height=170, marks=[m * factor for m in marks])
    return Figure(title=title, note="an upright line marks an event" if marks else "", svg=svg)


def _of_gpu(name: str, ending: str) -> bool:
    return name.startswith("gpu") and name.endswith(ending)


def _scaled(ending: str, lines: Sequence[Line]) -> tuple[str, list[Line]]:
    """Bytes become a unit of their size, so that ticks are round."""
    if not ending.endswith("_bytes"):
        return "", list(lines)
    top = max(v for line in lines for _, v in line.points)
    power = min(4, max(0, math.floor(math.log(max(top, 1), 1024))))
    unit = (" B", " KiB", " MiB", " GiB", " TiB")[power]
    return unit, [replace(li, points=[(t, v / 1024**power) for t, v in li.points]) for li in lines]


def _unit_axis(ending: str, unit: str, lines: Sequence[Line]) -> Axis:
    if ending.endswith("_ms"):
        return _time_axis(lines)
    if ending == "engine.kv_usage":
        return Axis(title="", show=lambda v: f"{v:.0%}", begins=0)
    unit = unit or {".power_w": " W", ".sm_clock_mhz": " MHz", ".temperature_c": " °C"}.get(ending, "")
    if ending.endswith("_percent"):
        unit = "%"
    return Axis(title="", show=lambda v: f"{_short(v)}{unit}")


def _pairs(value: object) -> list[tuple[float, float]]:
    """Times and values of a kept series; () for what is none."""
    if not isinstance(value, dict):
        return []
    row = cast("Mapping[str, object]", value)
    times, values = _numbers(row.get("time_s")), _numbers(row.get("value"))
    return list(zip(times, values, strict=False))


def _events(found: Measurement) -> list[float]:
    return [time for time, _ in events(found)]


def events(found: Measurement) -> list[tuple[float, str]]:
    """What happened while it ran: seconds since the load began, and words."""
    kept = found.telemetry.get("events")
    rows = cast("list[object]", kept) if isinstance(kept, list) else []
    result: list[tuple[float, str]] = []
    for row in rows:
        if isinstance(row, dict):
            event = cast("Mapping[str, object]", row)
            time = event.get("time_s")
            if isinstance(time, int | float):
                result.append((float(time), str(event.get("text"))))
    return result


def missing(found: Measurement) -> list[tuple[str, str]]:
    """Sensors that were not available, and why."""
    kept = found.telemetry.get("missing")
    if not isinstance(kept, dict):
        return []
    return [(name, str(why)) for name, why in cast("Mapping[str, object]", kept).items()]


def _ms(value: float) -> str:
    if value >= 1000:
        return f"{value / 1000:g} s"
    return f"{value:g} ms" if value >= 1 or value == 0 else f"{value * 1000:g} µs"


def _short(value: float) -> str:
    """1500 as 1.5k, so that ticks stay narrow."""
    for limit, letter in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= limit:
            return f"{value / (1e3 if letter == 'k' else limit):g}{letter}"
    return f"{value:g}"

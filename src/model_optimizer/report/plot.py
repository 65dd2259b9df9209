"""Plots as SVG text, small enough to read on a phone: lines, steps and dots over two axes.

Colours are CSS variables of the page, so that both themes work; every series also has its own dashes and
marker, for colour never carries meaning alone. Each dot has a title that a pointer shows.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Literal

WIDTH, HEIGHT = 440.0, 270.0
LEFT, RIGHT, TOP, BOTTOM = 66.0, 12.0, 12.0, 40.0
COLOURS = 6
_DASHES = ("", "6 3", "2 3", "9 3 2 3", "1 4", "12 4")

_LEAST = 1e-12  # smaller differences are none
Show = Callable[[float], str]
Point = tuple[float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One series. `style` line joins the points, dots does not, both does and marks them; `titles` are shown
    for single points. `colour` counts from 0; lines that belong together share one."""

    name: str
    points: Sequence[Point]
    style: Literal["line", "dots", "both"] = "line"
    titles: Sequence[str] = ()
    colour: int = 0
    dashed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """`show` writes a tick; `log` spaces by factors; `begins` and `ends` fix an end of the axis."""

    title: str
    show: Show = lambda v: f"{v:g}"
    log: bool = False
    begins: float | None = None
    ends: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """From values to places on the picture."""

    low: float
    high: float
    begin: float
    end: float
    log: bool

    def at(self, value: float) -> float:
        if self.log:
            value = max(value, self.low)
            share = math.log(value / self.low) / math.log(self.high / self.low)
        else:
            share = (value - self.low) / (self.high - self.low)
        return self.begin + min(1.05, max(-0.05, share)) * (self.end - self.begin)

    def ticks(self, most: int) -> list[float]:
        by_factor = _log_ticks(self.low, self.high) if self.log else []
        return by_factor if len(by_factor) > 1 else nice(self.low, self.high, most)


def nice(low: float, high: float, most: int = 5) -> list[float]:
    """Round numbers within, at most `most` of them or so."""
    span = high - low
    if not span > _LEAST:
        return [low]
    step = 10.0 ** math.floor(math.log10(span / most))
    step *= next(f for f in (1, 2, 5, 10, 20) if span / (step * f) <= most)
    first = math.ceil(low / step - 1e-9)
    return [round(i * step, 12) for i in range(first, math.floor(high / step + 1e-9) + 1)]


def _log_ticks(low: float, high: float) -> list[float]:
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for steps in ((1, 2, 5), (1, 3), (1,)):
        found = [s * 10.0**d for d in decades for s in steps if low <= s * 10.0**d <= high * 1.0001]
        if len(found) <= 6:
            return found
    return found[:: max(1, len(found) // 5)]


def scale(values: Sequence[float], axis: Axis, begin: float, end: float) -> Scale:
    """Wide enough for all values, zero included unless the axis is logarithmic or begins elsewhere."""
    known = [v for v in values if math.isfinite(v)]
    if axis.log:
        positive = [v for v in known if v > _LEAST] or [1.0]
        low, high = axis.begins or min(positive), axis.ends or max(positive)
        if high <= low:
            low, high = low / 1.5, low * 1.5
        return Scale(low=low / 1.05, high=high * 1.05, begin=begin, end=end, log=True)
    low = axis.begins if axis.begins is not None else min(0.0, min(known, default=0.0))
    high = axis.ends if axis.ends is not None else max(known, default=1.0)
    if high - low <= _LEAST:
        high = low + 1.0
    if axis.ends is None:
        high += 0.04 * (high - low)
    return Scale(low=low, high=high, begin=begin, end=end, log=False)


def plot(
    lines: Sequence[Line],
    x: Axis,
    y: Axis,
    *,
    title: str,
    height: float = HEIGHT,
    marks: Sequence[float] = (),
) -> str:
    """The picture. `marks` are upright lines at values of x (events)."""
    across = scale([p[0] for line in lines for p in line.points], x, LEFT, WIDTH - RIGHT)
    up = scale([p[1] for line in lines for p in line.points], y, height - BOTTOM, TOP)
    parts = [
        f'<svg viewBox="0 0 {WIDTH:g} {height:g}" role="img" aria-label="{escape(title, quote=True)}">',
        _grid(across, up, x, y, height),
        *(_mark(across.at(m), height) for m in marks),
        *(_line(line, across, up) for line in lines),
        "</svg>",
    ]
    return "".join(parts)


def legend(lines: Sequence[Line]) -> str:
    """The names of the series under a picture, each with its stroke; nothing for a single one."""
    if len(lines) < 2:
        return ""
    items = [
        f'<li><svg viewBox="0 0 26 10" width="26" height="10" aria-hidden="true">{_stroke(line)}</svg>'
        f"{escape(line.name)}</li>"
        for line in lines
    ]
    return f'<ul class="legend">{"".join(items)}</ul>'


def _stroke(line: Line) -> str:
    colour = line.colour % COLOURS
    if line.style == "dots":
        return f'<circle cx="13" cy="5" r="3.5" class="d{colour}"/>'
    return f'<path d="M1 5H25" class="l{colour}"{_dash(line)}/>'


def _dash(line: Line) -> str:
    """Each colour has its own dashes; a dashed one of the same colour is dotted."""
    pattern = "2 3" if line.dashed else _DASHES[line.colour % len(_DASHES)]
    return f' stroke-dasharray="{pattern}"' if pattern else ""


def _grid(across: Scale, up: Scale, x: Axis, y: Axis, height: float) -> str:
    bottom = height - BOTTOM
    parts: list[str] = []
    for value in up.ticks(max(2, round((bottom - TOP) / 42))):
        place = up.at(value)
        parts.append(f'<path class="grid" d="M{LEFT:g} {place:.1f}H{WIDTH - RIGHT:g}"/>')
        parts.append(f'<text x="{LEFT - 5:g}" y="{place + 4:.1f}" class="end">{escape(y.show(value))}</text>')
    for value in across.ticks(5):
        place = across.at(value)
        parts.append(f'<path class="grid" d="M{place:.1f} {bottom:g}V{bottom + 4:g}"/>')
        parts.append(f'<text x="{place:.1f}" y="{bottom + 17:g}" class="mid">{escape(x.show(value))}</text>')
    parts.append(f'<path class="axis" d="M{LEFT:g} {TOP:g}V{bottom:g}H{WIDTH - RIGHT:g}"/>')
    middle = (LEFT + WIDTH - RIGHT) / 2
    parts.append(f'<text x="{middle:g}" y="{height - 5:g}" class="mid name">{escape(x.title)}</text>')
    return "".join(parts)


def _mark(place: float, height: float) -> str:
    return f'<path class="mark" d="M{place:.1f} {TOP:g}V{height - BOTTOM:g}"/>'


def _line(line: Line, across: Scale, up: Scale) -> str:
    places = [(across.at(px), up.at(py)) for px, py in line.points if math.isfinite(px) and math.isfinite(py)]
    if not places:
        return ""
    colour = line.colour % COLOURS
    parts: list[str] = []
    if line.style != "dots" and len(places) > 1:
        path = "L".join(f"{px:.1f} {py:.1f}" for px, py in places)
        parts.append(f'<path class="l{colour}" d="M{path}"{_dash(line)}/>')
    if line.style != "line" or len(places) == 1:
        radius = 3.6 if line.style == "both" or len(places) < 60 else 1.7
        for index, (px, py) in enumerate(places):
            shown = line.titles[index] if index < len(line.titles) else ""
            title = f"<title>{escape(shown)}</title>" if shown else ""
            parts.append(
                f'<circle class="d{colour}" cx="{px:.1f}" cy="{py:.1f}" r="{radius}">{title}</circle>'
            )
    return "".join(parts)

"""What was recorded, as one noun: series of numbers and events, on one clock."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean

import msgspec


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something that happened once. A `fatal` one makes what was measured after it worthless."""

    time_ns: int
    kind: str
    text: str
    fatal: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """One quantity over time: `values[i]` was read at `times_ns[i]`, times rise."""

    times_ns: Sequence[int]
    values: Sequence[float]

    def between(self, begin_ns: int, end_ns: int) -> "Series":
        first, last = bisect_left(self.times_ns, begin_ns), bisect_right(self.times_ns, end_ns)
        return Series(times_ns=self.times_ns[first:last], values=self.values[first:last])

    def mean(self, begin_ns: int, end_ns: int) -> float | None:
        part = self.between(begin_ns, end_ns).values
        return fmean(part) if part else None

    def at(self, time_ns: int) -> float | None:
        """Interpolated between two readings; None outside of them."""
        after = bisect_left(self.times_ns, time_ns)
        if after >= len(self.times_ns) or (after == 0 and self.times_ns[0] != time_ns):
            return None
        t1, v1 = self.times_ns[after], self.values[after]
        t0, v0 = self.times_ns[max(0, after - 1)], self.values[max(0, after - 1)]
        return v1 if t1 == t0 else v0 + (v1 - v0) * (time_ns - t0) / (t1 - t0)

    def rise(self, begin_ns: int, end_ns: int) -> float | None:
        """How much a counter rose between two moments; None when they are not enclosed by readings, or
        it began again (a restart)."""
        begin, end = self.at(begin_ns), self.at(end_ns)
        if begin is None or end is None or end < begin:
            return None
        return end - begin

    def integral(self, begin_ns: int, end_ns: int) -> float | None:
        """Value times seconds, by trapezoids between readings; None when the moments are not enclosed."""
        begin, end = self.at(begin_ns), self.at(end_ns)
        if begin is None or end is None:
            return None
        part = self.between(begin_ns, end_ns)
        times = [begin_ns, *part.times_ns, end_ns]
        values = [begin, *part.values, end]
        return sum(
            (times[i + 1] - times[i]) * (values[i] + values[i + 1]) / 2e9 for i in range(len(times) - 1)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """`missing` says for each source that gave nothing, or less, what is not available and why."""

    series: Mapping[str, Series] = field(default_factory=dict[str, Series])
    events: Sequence[Event] = ()
    missing: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def fatal(self) -> Event | None:
        """The first event that ended what could be measured."""
        return next((event for event in self.events if event.fatal), None)

    def named(self, ending: str) -> list[Series]:
        """The series of all GPUs for one quantity: `named("power_w")`."""
        return [s for name, s in sorted(self.series.items()) if name.partition(".")[2] == ending]


Line = tuple[int, Mapping[str, float]]


def gathered(
    lines: Iterable[Line], events: Iterable[Event] = (), missing: Mapping[str, str] | None = None
) -> Timeline:
    """Samples in the order of their times, turned into series."""
    times: dict[str, list[int]] = {}
    values: dict[str, list[float]] = {}
    for time_ns, found in lines:
        for name, value in found.items():
            times.setdefault(name, []).append(time_ns)
            values.setdefault(name, []).append(value)
    series = {name: Series(times_ns=times[name], values=values[name]) for name in times}
    return Timeline(series=series, events=tuple(events), missing=dict(missing or {}))


class _Recorded(msgspec.Struct):
    """One line of the file that the recording process writes."""

    t: int
    v: dict[str, float] = {}
    event: Event | None = None
    missing: dict[str, str] = {}


def encode(time_ns: int, values: Mapping[str, float]) -> bytes:
    """A sample as one line."""
    return msgspec.json.encode({"t": time_ns, "v": values}) + b"\n"


def encode_event(event: Event) -> bytes:
    return msgspec.json.encode({"t": event.time_ns, "event": event}) + b"\n"


def encode_missing(time_ns: int, missing: Mapping[str, str]) -> bytes:
    return msgspec.json.encode({"t": time_ns, "missing": missing}) + b"\n"


def load(path: Path) -> Timeline:
    """Read what a recording process wrote; a last line that was cut off is left out."""
    lines: list[Line] = []
    events: list[Event] = []
    missing: dict[str, str] = {}
    decoder = msgspec.json.Decoder(_Recorded)
    with path.open("rb") as stream:
        for raw in stream:
            try:
                found = decoder.decode(raw)
            except msgspec.DecodeError:
                continue
            if found.v:
                lines.append((found.t, found.v))
            if found.event is not None:
                events.append(found.event)
            missing |= found.missing
    return gathered(lines, events, missing)

"""Reads its sources, each at its own interval, and hands on what they say. One thread does all of it."""

import heapq
import threading
from collections.abc import Callable, Mapping, Sequence
from time import perf_counter_ns
from typing import Protocol

from .timeline import Event

Say = Callable[[int, Mapping[str, float]], None]
"""Takes one sample: when it was read, and the values by name."""


class Source(Protocol):
    """Something that can be read. `read` never raises: what cannot be read is left out of the answer,
    and `missing` says what is not available and why."""

    name: str
    interval_s: float

    def read(self, now_ns: int) -> Mapping[str, float]: ...

    def events(self) -> Sequence[Event]:
        """What happened since the last call."""
        ...

    def missing(self) -> Mapping[str, str]: ...

    def close(self) -> None: ...


class Recorder:
    """`run` reads until `stop` is set. A source that takes longer than its interval is read less often:
    readings are skipped, never caught up with."""

    def __init__(
        self,
        sources: Sequence[Source],
        *,
        sample: Say,
        event: Callable[[Event], None],
        clock: Callable[[], int] = perf_counter_ns,
        wait: Callable[[threading.Event, float], bool] = threading.Event.wait,
    ) -> None:
        self._sources = sources
        self._sample = sample
        self._event = event
        self._clock = clock
        self._wait = wait

    def run(self, stop: threading.Event) -> None:
        """Read once at the beginning, at each interval, and once at the end, so that the load is enclosed."""
        due = [(self._clock(), index) for index in range(len(self._sources))]
        heapq.heapify(due)
        while due:
            when, index = due[0]
            if self._wait(stop, max(0.0, (when - self._clock()) / 1e9)):
                break
            self._read(self._sources[index])
            step = round(self._sources[index].interval_s * 1e9)
            behind = max(0, self._clock() - when - step) // step
            heapq.heapreplace(due, (when + step * (1 + behind), index))
        for source in self._sources:
            self._read(source)

    def missing(self) -> dict[str, str]:
        """What is not available, of all sources."""
        return {name: why for source in self._sources for name, why in source.missing().items()}

    def close(self) -> None:
        for source in self._sources:
            source.close()

    def _read(self, source: Source) -> None:
        now = self._clock()
        if values := source.read(now):
            self._sample(now, values)
        for event in source.events():
            self._event(event)

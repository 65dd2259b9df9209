"""Memory and energy beside a load, read by a thread of its own so that the client is not held up."""

import threading
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter_ns
from types import TracebackType

Reader = Callable[[], float | None]
"""Reads a quantity now; None when it cannot be read. An attribute `source` says how it is read."""

NOT_MEASURABLE = "not measurable here"
_INTERVAL_S = 0.1
_MEMORY_EVERY = 5  # reading it costs the server's kernel more than reading a counter


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampled:
    """What was read, and when (`perf_counter_ns`): pairs of time and bytes, time and joules so far."""

    memory: Sequence[tuple[int, float]] = ()
    energy: Sequence[tuple[int, float]] = ()
    memory_source: str | None = None
    energy_source: str = NOT_MEASURABLE

    def peak_bytes(self, begin_ns: int, end_ns: int) -> int | None:
        """The largest sample within, or the nearest one when the stretch is shorter than the interval."""
        if not self.memory:
            return None
        times = [time for time, _ in self.memory]
        first, last = bisect_left(times, begin_ns), bisect_right(times, end_ns)
        near = self.memory[max(0, first - 1) : last + 1]
        within = self.memory[first:last]
        return round(max(value for _, value in within or near))

    def energy_j(self, begin_ns: int, end_ns: int) -> float | None:
        """Joules between two moments, interpolated between samples; None when they are not enclosed."""
        begin, end = self._joules_at(begin_ns), self._joules_at(end_ns)
        return end - begin if begin is not None and end is not None else None

    def _joules_at(self, time_ns: int) -> float | None:
        times = [time for time, _ in self.energy]
        after = bisect_left(times, time_ns)
        if after >= len(times) or (after == 0 and times[0] != time_ns):
            return None
        (t1, j1), (t0, j0) = self.energy[after], self.energy[max(0, after - 1)]
        return j1 if t1 == t0 else j0 + (j1 - j0) * (time_ns - t0) / (t1 - t0)


class Sampler:
    """Samples while it is entered; `sampled` is what came of it."""

    def __init__(self, memory: Reader | None, energy: Reader | None) -> None:
        self._memory = memory
        self._energy = energy
        self._memory_samples: list[tuple[int, float]] = []
        self._energy_samples: list[tuple[int, float]] = []
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> "Sampler":
        if self._memory or self._energy:
            self._read()
            self._thread = threading.Thread(target=self._run, name="sampler", daemon=True)
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._thread is not None:
            self._stop.set()
            self._thread.join()
            self._read()

    def sampled(self) -> Sampled:
        held = _source(self._memory, "peak of what the server's processes held, every 0.5 s")
        return Sampled(
            memory=tuple(self._memory_samples),
            energy=tuple(self._energy_samples),
            memory_source=held if self._memory_samples else None,
            energy_source=_source(self._energy, "by the caller") if self._energy_samples else NOT_MEASURABLE,
        )

    def _run(self) -> None:
        count = 0
        while not self._stop.wait(_INTERVAL_S):
            count += 1
            self._read(with_memory=count % _MEMORY_EVERY == 0)

    def _read(self, *, with_memory: bool = True) -> None:
        _sample(self._energy, self._energy_samples)
        if with_memory:
            _sample(self._memory, self._memory_samples)


def _sample(reader: Reader | None, samples: list[tuple[int, float]]) -> None:
    value = reader() if reader is not None else None
    if value is not None:
        samples.append((perf_counter_ns(), value))


def _source(reader: Reader | None, otherwise: str) -> str:
    return str(getattr(reader, "source", otherwise))

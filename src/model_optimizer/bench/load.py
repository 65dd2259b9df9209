"""Drive one level of load: a closed loop, or an open one on a schedule of absolute times."""

import asyncio
import gc
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from time import perf_counter_ns, thread_time_ns

from model_optimizer.core.workload import Arrivals

from .arrivals import offsets_ns
from .clock import Alarm
from .exchange import Exchange, Outcome
from .pool import Pool
from .request import Prepared

_TICK_S = 0.02
_LEAD_NS = 20_000_000  # a schedule begins this long after the loop does
_READ_SLICE_NS = 2_000_000
_FIRST_FAILURES = 20
_AHEAD = 4096
_AHEAD_BYTES = 64 << 20
_PREPARE_NS = 20_000_000_000
_PREPARE_SOME_NS = 500_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """What one level asks for. `warmup` requests come first, then `requests` of them or `duration_s`.

    `title` is how people read it: `concurrency 8`.
    """

    title: str
    arrivals: Arrivals
    concurrency: int | None = None
    qps: float | None = None
    burstiness: float = 1.0
    requests: int | None = None
    duration_s: float | None = None
    warmup: int = 0
    seed: int = 0
    timeout_s: float = 300.0
    keep_bytes: int = 256 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Driven:
    """A level that was driven. The window is open from `opened_ns` until `closed_ns`, when load was no
    longer offered; `ended_ns` is when the last answer was in. `slips_ms` are how late requests of an
    open loop were begun, `lags_ms` how late the event loop was. `given_up` requests were under way when
    it was interrupted: they count nowhere.
    """

    level: Level
    outcomes: tuple[Outcome, ...]
    opened_ns: int
    closed_ns: int
    ended_ns: int
    slips_ms: tuple[float, ...] = ()
    lags_ms: tuple[float, ...] = ()
    cpu_share: float | None = None
    given_up: int = 0
    stopped: str | None = None
    interrupted: bool = False


class Driver:
    """One level, once. `make` gives the n-th request, `read` judges a finished exchange, `progress` is
    called about ten times a second with the share done."""

    def __init__(
        self,
        level: Level,
        pool: Pool,
        *,
        make: Callable[[int], Prepared],
        read: Callable[[Exchange], Outcome],
        progress: Callable[[float], None],
    ) -> None:
        self._level = level
        self._pool = pool
        self._make = make
        self._read = read
        self._progress = progress
        self._ahead: list[Prepared] = []
        self._issued = 0
        self._flying: dict[Exchange, None] = {}
        self._unread: list[Exchange] = []
        self._unread_bytes = 0
        self._outcomes: list[Outcome] = []
        self._finished = self._finished_measured = self._good = 0
        self._opened_ns: int | None = None
        self._closed_ns: int | None = None
        self._cpu_ns = 0
        self._slips: list[float] = []
        self._lags: list[float] = []
        self._stopped: str | None = None

    async def run(self) -> Driven:
        """Drive the level to its end. A cancellation (Ctrl-C) ends it early, and the result says so."""
        self._prepare()
        self._progress(0.0)
        interrupted = False
        with _quiet_memory():
            ticker = asyncio.create_task(self._tick())
            try:
                await (self._closed_loop() if self._level.arrivals == "closed" else self._open_loop())
            except asyncio.CancelledError:
                interrupted = True
                if (task := asyncio.current_task()) is not None:
                    task.uncancel()
            finally:
                ticker.cancel()
        return self._result(interrupted=interrupted)

    # Loops.

    async def _closed_loop(self) -> None:
        assert self._level.concurrency is not None
        async with asyncio.TaskGroup() as group:
            for _ in range(self._level.concurrency):
                group.create_task(self._worker())

    async def _worker(self) -> None:
        """One user: the next request follows the end of the last one. A server that cannot be connected
        to is not asked in a busy loop."""
        pause_s = 0.0
        while (exchange := self._next(perf_counter_ns())) is not None:
            await self._carry(exchange)
            pause_s = min(1.0, 2 * pause_s or 0.1) if exchange.error == "connect" else 0.0
            if pause_s:
                await asyncio.sleep(pause_s)

    async def _open_loop(self) -> None:
        alarm = Alarm()
        begin = perf_counter_ns() + _LEAD_NS
        try:
            async with asyncio.TaskGroup() as group:
                for time_ns in self._schedule(begin):
                    await alarm.until(time_ns)
                    if self._stopped:
                        break
                    if self._opened_ns is not None:
                        self._slips.append((perf_counter_ns() - time_ns) / 1e6)
                    group.create_task(self._carry(self._issue(time_ns)))
        finally:
            alarm.close()

    def _schedule(self, begin: int) -> Iterator[int]:
        """Absolute times of all arrivals; opens the window with the last one of the warm-up."""
        level = self._level
        offsets = offsets_ns(level.arrivals, level.qps or float("inf"), level.burstiness, level.seed)
        last = begin
        for index, offset in enumerate(offsets):
            time_ns = begin + offset
            if index == level.warmup:
                self._open(last)
            if self._opened_ns is not None:
                end = self._opened_ns + round((level.duration_s or 0) * 1e9)
                if level.requests is not None and index - level.warmup >= level.requests:
                    self._closed_ns = last
                    return
                if level.requests is None and time_ns > end:
                    self._closed_ns = end
                    return
            yield time_ns
            last = time_ns

    # Requests.

    def _next(self, now: int) -> Exchange | None:
        """The next request of a closed loop; None when no more are wanted, which closes the window."""
        level = self._level
        if self._issued == level.warmup:
            self._open(now)
        if self._opened_ns is not None:
            enough = level.requests is not None and self._issued - level.warmup >= level.requests
            end = None if level.duration_s is None else self._opened_ns + round(level.duration_s * 1e9)
            if enough or (end is not None and now >= end):
                self._closed_ns = self._closed_ns or (now if end is None else min(now, end))
                return None
        return None if self._stopped else self._issue(now)

    def _issue(self, scheduled_ns: int) -> Exchange:
        index = self._issued
        self._issued += 1
        prepared = self._ahead.pop() if self._ahead else self._make(index)
        measured = self._opened_ns is not None
        return Exchange(prepared, index=index, measured=measured, scheduled_ns=scheduled_ns)

    async def _carry(self, exchange: Exchange) -> None:
        self._flying[exchange] = None
        await self._pool.carry(exchange)
        del self._flying[exchange]
        self._unread.append(exchange)
        self._unread_bytes += exchange.size
        self._finished += 1
        self._finished_measured += exchange.measured
        self._good += exchange.error is None and exchange.status == 200
        if not self._good and self._finished >= max(_FIRST_FAILURES, 2 * (self._level.concurrency or 0)):
            self._stopped = f"stopped early: the first {self._finished} requests all failed"

    def _open(self, now: int) -> None:
        if self._opened_ns is None:
            self._opened_ns = now
            self._cpu_ns = thread_time_ns()

    def _prepare(self) -> None:
        """Make requests before the load, so that it is not done under load: all of them where their number
        is known, else as many as a moment allows. What is missing later is made when it is needed."""
        level, begin, size = self._level, perf_counter_ns(), 0
        wanted, limit_ns = level.requests, _PREPARE_NS
        if wanted is None and level.qps:
            wanted = round(level.qps * (level.duration_s or 0) * 1.2)
        if wanted is None:
            wanted, limit_ns = _AHEAD, _PREPARE_SOME_NS
        for index in range(level.warmup + wanted):
            self._ahead.append(self._make(index))
            size += len(self._ahead[-1].data)
            if size > _AHEAD_BYTES or perf_counter_ns() - begin > limit_ns:
                break
        self._ahead.reverse()

    # What happens beside the load.

    async def _tick(self) -> None:
        """Time limits, the lag of the event loop, progress, and room for what comes next."""
        count = 0
        while True:
            expected = perf_counter_ns() + round(_TICK_S * 1e9)
            await asyncio.sleep(_TICK_S)
            now = perf_counter_ns()
            if self._opened_ns is not None and self._closed_ns is None:
                self._lags.append(max(0.0, (now - expected) / 1e6))
            self._read_some(now)
            count += 1
            if count % 5 == 0:
                self._expire(now)
                self._progress(self._share(now))

    def _expire(self, now: int) -> None:
        limit_ns = round(self._level.timeout_s * 1e9)
        for exchange in tuple(self._flying):  # in the order in which they were to be sent
            if now - exchange.scheduled_ns <= limit_ns:
                break
            self._pool.expire(exchange, f"no whole answer within {self._level.timeout_s:g} s")

    def _read_some(self, now: int) -> None:
        """Judge finished exchanges while it runs only when keeping their bytes would take too much room."""
        while self._unread_bytes > self._level.keep_bytes and self._unread:
            exchange = self._unread.pop()
            self._unread_bytes -= exchange.size
            self._outcomes.append(self._read(exchange))
            if perf_counter_ns() - now > _READ_SLICE_NS:
                break

    def _share(self, now: int) -> float:
        level = self._level
        if level.requests is not None:
            return min(1.0, self._finished / (level.warmup + level.requests))
        if self._opened_ns is None or not level.duration_s:
            return 0.0
        return max(0.0, min(1.0, (now - self._opened_ns) / 1e9 / level.duration_s))

    def _result(self, *, interrupted: bool) -> Driven:
        ended = perf_counter_ns()
        opened = self._opened_ns if self._opened_ns is not None else ended
        busy = (thread_time_ns() - self._cpu_ns) / max(1, ended - opened) if self._opened_ns else None
        given_up = len(self._flying)
        self._outcomes += [self._read(exchange) for exchange in self._unread]
        return Driven(
            level=self._level,
            outcomes=tuple(sorted(self._outcomes, key=lambda outcome: outcome.index)),
            opened_ns=opened,
            closed_ns=self._closing(opened, ended),
            ended_ns=ended,
            slips_ms=tuple(self._slips),
            lags_ms=tuple(self._lags),
            cpu_share=busy,
            given_up=given_up,
            stopped=self._stopped,
            interrupted=interrupted,
        )

    def _closing(self, opened: int, ended: int) -> int:
        if self._closed_ns is not None:
            return min(self._closed_ns, ended)
        if self._level.duration_s is not None:
            return min(opened + round(self._level.duration_s * 1e9), ended)
        return ended


@contextmanager
def _quiet_memory() -> Generator[None]:
    """Objects made before the load are not looked at by the garbage collector during it."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()

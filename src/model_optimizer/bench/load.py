"""Drive one level of load: a closed loop, or an open one on a schedule of absolute times."""

import asyncio
import gc
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from random import Random
from time import perf_counter_ns, thread_time_ns
from typing import Protocol

from .clock import Alarm, Clock
from .exchange import Exchange, Outcome
from .level import Driven, Level
from .request import Prepared

_TICK_S = 0.02
_LEAD_NS = 20_000_000  # a schedule begins this long after the loop does
_READ_SLICE_NS = 2_000_000
_FIRST_FAILURES = 20
_AHEAD = 4096
_AHEAD_BYTES = 64 << 20
_PREPARE_NS = 20_000_000_000
_PREPARE_SOME_NS = 500_000_000


class Carrier(Protocol):
    """Sends requests and waits for their answers: a pool of connections."""

    async def carry(self, exchange: Exchange) -> None: ...

    def expire(self, exchange: Exchange, detail: str) -> None: ...


class Driver:
    """One level, once. `make` gives the n-th request, `read` judges a finished exchange, `progress` is
    called about ten times a second with the share done. `follow` gives the next turn of a session."""

    def __init__(
        self,
        level: Level,
        pool: Carrier,
        *,
        make: Callable[[int], Prepared],
        read: Callable[[Exchange], Outcome],
        progress: Callable[[float], None],
        follow: Callable[[Exchange], Prepared | None] | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._level = level
        self._pool = pool
        self._make = make
        self._read = read
        self._progress = progress
        self._follow = follow
        self._clock = clock or Clock()
        self._now = self._clock.now
        self._dice = Random(f"think/{level.seed}/{level.share}")
        self._prepared = False
        self._ahead: list[Prepared] = []
        self._issued = 0
        self._flying: dict[Exchange, None] = {}
        self._unread: list[Exchange] = []
        self._unread_bytes = 0
        self._outcomes: list[Outcome] = []
        self._finished = self._good = self._late = 0
        self._opened_ns: int | None = None
        self._closed_ns: int | None = None
        self._cpu_ns = 0
        self._slips: list[float] = []
        self._lags: list[float] = []
        self._stopped: str | None = None
        self._aborted = False
        self._main: asyncio.Task[object] | None = None

    async def run(self, begin_ns: int | None = None) -> Driven:
        """Drive the level to its end. A cancellation (Ctrl-C) ends it early, and the result says so.

        `begin_ns` is when the schedule of an open loop begins, which processes that share it agree on.
        """
        self.prepare()
        self._progress(0.0)
        interrupted = False
        self._main = asyncio.current_task()
        with _quiet_memory():
            ticker = asyncio.create_task(self._tick())
            try:
                begin = begin_ns or self._now() + _LEAD_NS
                await (self._closed_loop() if self._level.arrivals == "closed" else self._open_loop(begin))
            except asyncio.CancelledError:
                interrupted = not self._aborted
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
        turn: Prepared | None = None
        while (exchange := self._next(self._now(), turn)) is not None:
            await self._carry(exchange)
            pause_s = min(1.0, 2 * pause_s or 0.1) if exchange.error == "connect" else 0.0
            turn = self._follow(exchange) if self._follow else None
            if wait_s := pause_s + (self._think_s() if turn else 0.0):
                await asyncio.sleep(wait_s)

    async def _open_loop(self, begin: int) -> None:
        alarm = Alarm(self._clock)
        try:
            async with asyncio.TaskGroup() as group:
                for time_ns in self._schedule(begin):
                    await alarm.until(time_ns)
                    if self._stopped:
                        break
                    if self._opened_ns is not None:
                        self._slips.append((self._now() - time_ns) / 1e6)
                    group.create_task(self._session(self._issue(time_ns)))
        finally:
            alarm.close()

    async def _session(self, exchange: Exchange) -> None:
        """A request of an open loop, and the turns that follow it for as long as load is offered."""
        await self._carry(exchange)
        while self._follow and (turn := self._follow(exchange)) is not None:
            due = (exchange.finished_ns or self._now()) + round(self._think_s() * 1e9)
            await asyncio.sleep(max(0.0, (due - self._now()) / 1e9))
            if self._stopped or (self._level.duration_s is not None and self._closed_ns is not None):
                return
            measured = self._opened_ns is not None and self._closed_ns is None
            exchange = Exchange(turn, index=exchange.index, measured=measured, scheduled_ns=due)
            await self._carry(exchange)

    def _think_s(self) -> float:
        mean = self._level.think_time_s
        return self._dice.expovariate(1 / mean) if mean else 0.0

    def _schedule(self, begin: int) -> Iterator[int]:
        """Absolute times of this process's arrivals; opens the window with the last one of the warm-up."""
        level = self._level
        last = begin
        for index, offset in enumerate(level.arrivals_ns()):
            time_ns = begin + offset
            if index == level.warmup:
                self._open(last)
            if self._opened_ns is not None:
                end = self._opened_ns + round((level.duration_s or 0) * 1e9)
                if level.requests is not None and index - level.warmup >= level.requests:
                    self._closed_ns = last
                    return
                if level.requests is None and level.duration_s is not None and time_ns > end:
                    self._closed_ns = end
                    return
            if index % level.shares == level.share:
                yield time_ns
            last = time_ns
        self._closed_ns = last

    # Requests.

    def _next(self, now: int, turn: Prepared | None = None) -> Exchange | None:
        """The next request of a closed loop; None when no more are wanted, which closes the window."""
        level = self._level
        number = self._number(self._issued)
        if number >= level.warmup:
            self._open(now)
        if self._opened_ns is not None:
            enough = level.requests is not None and number - level.warmup >= level.requests
            end = None if level.duration_s is None else self._opened_ns + round(level.duration_s * 1e9)
            if enough or (end is not None and now >= end):
                self._closed_ns = self._closed_ns or (now if end is None else min(now, end))
                return None
        return None if self._stopped else self._issue(now, turn)

    def _number(self, own: int) -> int:
        """The place of this process's n-th request among those of all processes."""
        return self._level.share + self._level.shares * own

    def _issue(self, scheduled_ns: int, turn: Prepared | None = None) -> Exchange:
        index = self._number(self._issued)
        self._issued += 1
        prepared = turn or (self._ahead.pop() if self._ahead else self._make(index))
        measured = self._opened_ns is not None
        return Exchange(prepared, index=index, measured=measured, scheduled_ns=scheduled_ns)

    async def _carry(self, exchange: Exchange) -> None:
        self._flying[exchange] = None
        await self._pool.carry(exchange)
        del self._flying[exchange]
        self._unread.append(exchange)
        self._unread_bytes += exchange.size
        self._finished += 1
        self._good += exchange.error is None and exchange.status == 200
        if exchange.measured and (overload := self._level.overload):
            self._late += overload.misses(exchange, self._now(), is_open=self._level.arrivals != "closed")
        if not self._good and self._finished >= max(_FIRST_FAILURES, 2 * (self._level.concurrency or 0)):
            self._stopped = f"stopped early: the first {self._finished} requests all failed"

    def _open(self, now: int) -> None:
        if self._opened_ns is None:
            self._opened_ns = now
            self._cpu_ns = thread_time_ns()

    def prepare(self) -> None:
        """Make requests before the load, so that it is not done under load: all of them where their number
        is known, else as many as a moment allows. What is missing later is made when it is needed."""
        if self._prepared:
            return
        self._prepared = True
        level, begin, size = self._level, perf_counter_ns(), 0
        wanted, limit_ns = level.requests, _PREPARE_NS
        if wanted is None and level.qps:
            wanted = round(level.qps * (level.duration_s or 0) * 1.2)
        if wanted is None:
            wanted, limit_ns = _AHEAD, _PREPARE_SOME_NS
        for index in range(level.share, level.warmup + wanted, level.shares):
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
            expected = self._now() + round(_TICK_S * 1e9)
            await asyncio.sleep(_TICK_S)
            now = self._now()
            if self._opened_ns is not None and self._closed_ns is None:
                self._lags.append(max(0.0, (now - expected) / 1e6))
            self._read_some(now)
            count += 1
            if count % 5 == 0:
                self._expire(now)
                self._give_up_early(now)
                self._progress(self._share(now))

    def _expire(self, now: int) -> None:
        limit_ns = round(self._level.timeout_s * 1e9)
        for exchange in tuple(self._flying):  # in the order in which they were to be sent
            if now - exchange.scheduled_ns <= limit_ns:
                break
            self._pool.expire(exchange, f"no whole answer within {self._level.timeout_s:g} s")

    def _give_up_early(self, now: int) -> None:
        overload, is_open = self._level.overload, self._level.arrivals != "closed"
        if overload is None or self._stopped or self._main is None:
            return
        late = sum(overload.misses(e, now, is_open=is_open) for e in self._flying if e.measured)
        if because := overload.lost(self._late + late):
            self._stopped, self._aborted = because, True
            self._main.cancel()

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
            return min(1.0, self._finished * level.shares / (level.warmup + level.requests))
        if self._opened_ns is None or not level.duration_s:
            return 0.0
        return max(0.0, min(1.0, (now - self._opened_ns) / 1e9 / level.duration_s))

    def _result(self, *, interrupted: bool) -> Driven:
        ended = self._now()
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
            aborted=self._aborted,
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
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()

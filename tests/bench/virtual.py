"""A clock that nobody waits for: an event loop whose time jumps to the next timer, and a server that plays
recorded answers on it. What a client measures then is the truth to the nanosecond, or it is wrong."""

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from model_optimizer.bench import answers
from model_optimizer.bench.clock import Clock
from model_optimizer.bench.exchange import Exchange
from model_optimizer.bench.level import Driven, Level
from model_optimizer.bench.load import Driver
from model_optimizer.bench.request import Prepared
from model_optimizer.testing.null_server import stream_parts

T = TypeVar("T")


class _Jumping(selectors.DefaultSelector):
    """Instead of waiting, moves the time on."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def select(self, timeout: float | None = None) -> Any:
        if timeout is None:
            raise AssertionError("everything waits for something that cannot come")
        self.now += max(0.0, timeout)
        return super().select(0)


class Loop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._jumping = _Jumping()
        super().__init__(self._jumping)
        self._clock_resolution = 1e-9

    def time(self) -> float:
        return self._jumping.now


def run(make: Callable[[Clock], Coroutine[Any, Any, T]]) -> T:
    loop = Loop()
    clock = Clock(now=lambda: round(loop.time() * 1e9))
    try:
        return loop.run_until_complete(make(clock))
    finally:
        loop.close()


class Player:
    """Answers each request with `parts`, the i-th of them `delays_s(number)[i]` after the one before. Of
    `slots` (0: any number) at a time are worked on."""

    def __init__(
        self,
        clock: Clock,
        parts: tuple[bytes, ...],
        delays_s: Callable[[int], tuple[float, ...]],
        slots: int = 0,
    ) -> None:
        self._slots = asyncio.Semaphore(slots or 1 << 30)
        self._clock = clock
        self._parts = parts
        self._delays_s = delays_s
        self.flying = self.most_flying = self.count = 0

    async def carry(self, exchange: Exchange) -> None:
        exchange.sent_ns = self._clock.now()
        number, self.count = self.count, self.count + 1
        self.flying += 1
        self.most_flying = max(self.most_flying, self.flying)
        async with self._slots:
            await self._play(exchange, number)
        self.flying -= 1
        if exchange.finished_ns is None:
            exchange.finished_ns, exchange.status = self._clock.now(), 200

    async def _play(self, exchange: Exchange, number: int) -> None:
        for part, delay_s in zip(self._parts, self._delays_s(number), strict=True):
            await asyncio.sleep(delay_s)
            if exchange.finished_ns is None:
                exchange.pieces.append(part)
                exchange.times_ns.append(self._clock.now())

    def expire(self, exchange: Exchange, detail: str) -> None:
        exchange.fail("timeout", detail, self._clock.now())


def drive(
    level: Level,
    *,
    tokens: int = 4,
    delays_s: Callable[[int], tuple[float, ...]] | None = None,
    follow: Callable[[Exchange], Prepared | None] | None = None,
    slots: int = 0,
) -> Driven:
    """Drive a level against a player of streams of `tokens`: 20 ms to the first, 5 ms for each other."""
    parts = stream_parts(b"/v1/completions", tokens)
    delays = delays_s or (lambda _: (0.020, *(0.005,) * (tokens - 1)))

    async def go(clock: Clock) -> Driven:
        driver = Driver(
            level,
            Player(clock, parts, delays, slots),
            make=lambda index: Prepared(data=b"%d" % index, output_tokens=tokens),
            read=lambda exchange: answers.read(exchange, "completions"),
            progress=lambda _: None,
            follow=follow,
            clock=clock,
        )
        return await driver.run(begin_ns=1_000_000_000)

    return run(go)

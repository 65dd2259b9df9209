"""Two clients for the same load: ours, and a bare asyncio loop that only receives.

Both send the same bytes in a closed loop and are charged the CPU time of their thread.
"""

import asyncio
import re
from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter, thread_time
from typing import Any

from model_optimizer.bench import answers
from model_optimizer.bench.exchange import Exchange, Outcome
from model_optimizer.bench.level import Driven, Level
from model_optimizer.bench.load import Driver
from model_optimizer.bench.pool import Pool
from model_optimizer.bench.prompts import TokenIds
from model_optimizer.bench.request import Manner, Prepared, Writer
from model_optimizer.bench.target import Target, address
from model_optimizer.core import Lengths, Workload

END = re.compile(rb"0\r\n\r\n$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Seconds of CPU, of which `reading_s` after the load; seconds on the clock; what was received."""

    cpu_s: float
    reading_s: float
    wall_s: float
    requests: int
    pieces: int


def prepared(url: str, tokens: int, *, stream: bool = True, prompt_tokens: int = 128) -> Prepared:
    work = Workload(prompt_tokens=Lengths.fixed(prompt_tokens), output_tokens=Lengths.fixed(tokens))
    prompts = TokenIds(api="completions", ids=range(100, 30_000))
    writer = Writer(Target(url=url), address(url), None, work, prompts, seed=0)
    return writer.make(Manner(api="completions", model="null", stream=stream), 0, 0)


async def ours(url: str, request: Prepared, level: Level) -> tuple[Driven, Cost]:
    """Drive one level with the product's own client, and read all answers."""
    reading = 0.0

    def read(exchange: Exchange) -> Outcome:
        nonlocal reading
        begin = thread_time()
        outcome = answers.read(exchange, "completions")
        reading += thread_time() - begin
        nonlocal pieces
        pieces += len(exchange.pieces)
        return outcome

    pieces = 0
    pool = Pool(address(url), limit=1 << 26, connect_timeout_s=10)
    driver = Driver(level, pool, make=lambda _: request, read=read, progress=lambda _: None)
    cpu, wall = thread_time(), perf_counter()
    driven = await driver.run()
    cpu, wall = thread_time() - cpu, perf_counter() - wall
    pool.close()
    await asyncio.sleep(0)
    count = len(driven.outcomes)
    return driven, Cost(cpu_s=cpu, reading_s=reading, wall_s=wall, requests=count, pieces=pieces)


class Bare(asyncio.Protocol):
    """The least that a client can do: receive, take the time, see whether the answer is over."""

    def __init__(
        self, data: bytes, left: list[int], times: list[float], done: "asyncio.Future[None]"
    ) -> None:
        self._data, self._left, self._times, self._done = data, left, times, done
        self._transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self._send()

    def _send(self) -> None:
        if self._left[0] <= 0:
            self._transport.close()
            if not self._done.done():
                self._done.set_result(None)
            return
        self._left[0] -= 1
        self._transport.write(self._data)

    def data_received(self, data: bytes) -> None:
        self._times.append(perf_counter())
        if data.endswith(b"0\r\n\r\n"):
            self._send()


async def bare(url: str, request: Prepared, *, concurrency: int, requests: int) -> Cost:
    loop = asyncio.get_running_loop()
    where = address(url)
    left, times = [requests], list[float]()
    futures: Sequence[asyncio.Future[None]] = [loop.create_future() for _ in range(concurrency)]
    cpu, wall = thread_time(), perf_counter()
    for future in futures:
        await loop.create_connection(
            lambda future=future: Bare(request.data, left, times, future), where.host, where.port
        )
    await asyncio.gather(*futures)
    cpu, wall = thread_time() - cpu, perf_counter() - wall
    return Cost(cpu_s=cpu, reading_s=0.0, wall_s=wall, requests=requests, pieces=len(times))

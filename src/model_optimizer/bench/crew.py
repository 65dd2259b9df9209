"""Several processes that drive one level together.

They share one plan: each takes every n-th arrival of an open loop, or its part of the users of a closed
one. The clock is the machine's, so their times are on one axis. What they measured becomes one record.

A member is this package's own `member.py`; a frame between us is a length and a MessagePack object.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from time import perf_counter_ns

import msgspec

from model_optimizer.core import HostError, Workload
from model_optimizer.system.piped import Piped

from .level import Driven, Level
from .options import BenchOptions
from .request import Manner
from .target import Target

_READY_S = 60.0
_LEAD_NS = 50_000_000
_STOP_S = 10.0
_MEMBER = "model_optimizer.bench.member"


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What one member is told. `source` is which way to make prompts was found to work."""

    target: Target
    workload: Workload
    options: BenchOptions
    seed: int
    manner: Manner
    source: int
    number: int
    level: Level


def parts_of(level: Level, processes: int) -> list[Level]:
    """The level as each process drives it; no more processes than users."""
    if level.concurrency is not None:
        processes = min(processes, level.concurrency)
    parts: list[Level] = []
    for share in range(processes):
        users = level.concurrency
        own = None if users is None else users // processes + (share < users % processes)
        parts.append(replace(level, share=share, shares=processes, concurrency=own))
    return parts


def merged(level: Level, parts: Sequence[Driven]) -> Driven:
    """What all processes measured, as if one had."""
    outcomes = sorted((o for part in parts for o in part.outcomes), key=lambda o: o.index)
    shares = [part.cpu_share for part in parts if part.cpu_share is not None]
    return Driven(
        level=level,
        outcomes=tuple(outcomes),
        opened_ns=min(part.opened_ns for part in parts),
        closed_ns=min(part.closed_ns for part in parts),
        ended_ns=max(part.ended_ns for part in parts),
        slips_ms=tuple(slip for part in parts for slip in part.slips_ms),
        lags_ms=tuple(lag for part in parts for lag in part.lags_ms),
        cpu_share=max(shares, default=None),
        given_up=sum(part.given_up for part in parts),
        stopped=next((part.stopped for part in parts if part.stopped), None),
        interrupted=any(part.interrupted for part in parts),
        aborted=any(part.aborted for part in parts),
        processes=len(parts),
    )


async def drive(job: Job, processes: int, progress: Callable[[float], None]) -> Driven:
    """Drive a level with several processes. Raises HostError when one of them does not start."""
    levels = parts_of(job.level, processes)
    members = [Member(replace(job, level=level)) for level in levels]
    tasks: list[asyncio.Task[Driven]] = []
    try:
        await asyncio.gather(*(member.start() for member in members))
        begin = perf_counter_ns() + _LEAD_NS
        for member in members:
            member.send({"begin_ns": begin})
        shares = [0.0] * len(members)

        def tell(place: int, share: float) -> None:
            shares[place] = share
            progress(min(shares))

        tasks += [
            asyncio.create_task(member.result(lambda share, place=place: tell(place, share)))
            for place, member in enumerate(members)
        ]
        return merged(job.level, await _all(tasks, members))
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.gather(*(member.end() for member in members))


async def _all(tasks: "list[asyncio.Task[Driven]]", members: "Sequence[Member]") -> list[Driven]:
    """The results of all; after Ctrl-C what they have until then."""
    try:
        return list(await asyncio.gather(*map(asyncio.shield, tasks)))
    except asyncio.CancelledError:
        if (task := asyncio.current_task()) is not None:
            task.uncancel()
        for member in members:
            member.send({"stop": True})
        return list(await asyncio.wait_for(asyncio.gather(*tasks), _STOP_S))


class Member:
    """One other process, as this one sees it."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._process: Piped | None = None
        self._heard = False

    async def start(self) -> None:
        """Start it, hand it its job, and wait until its requests are made."""
        self._process = await Piped.start(_MEMBER)
        self.send(self._job)
        try:
            await asyncio.wait_for(self._frame(), _READY_S)
        except TimeoutError:
            raise HostError("a process of the load generator does not start") from None

    def send(self, value: object) -> None:
        assert self._process is not None
        self._process.send(msgspec.msgpack.encode(value))

    async def result(self, progress: Callable[[float], None]) -> Driven:
        while True:
            found = msgspec.msgpack.decode(await self._frame(), type=Said)
            if found.driven is not None:
                self._heard = True
                return found.driven
            progress(found.share)

    async def end(self) -> None:
        """A process whose result is here ends by itself; nothing of another one is needed any more."""
        if self._process is not None:
            await self._process.end(at_once=not self._heard)

    async def _frame(self) -> bytes:
        assert self._process is not None
        try:
            return await self._process.receive()
        except EOFError:
            raise HostError(
                f"process {self._process.pid} of the load generator ended early",
                cause=("the load was then another one than asked for, so nothing of it counts",),
                hint=("if it was killed for want of memory, use fewer --processes or shorter answers",),
            ) from None


class Said(msgspec.Struct):
    """What a member tells: how far it is, or in the end what it measured."""

    share: float = 0.0
    driven: Driven | None = None


class Told(msgspec.Struct):
    """What a member is told after its job: when to begin, or to stop."""

    begin_ns: int | None = None
    stop: bool = False

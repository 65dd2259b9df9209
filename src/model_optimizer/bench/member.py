"""One process of several that drive a level together: `python -m model_optimizer.bench.member`.

It reads its job and then its orders from the standard input and answers on the standard output, as `crew`
says. It ends with its input, so it never outlives the process that started it.
"""

import asyncio
import gc
import sys
from contextlib import suppress

import msgspec

from model_optimizer.system.piped import frame

from . import answers
from .crew import Job, Said, Told
from .exchange import Exchange, Outcome
from .load import Driver
from .pool import Pool, allow_many_sockets
from .request import Prepared
from .scout import writer_of
from .target import address, api_key


def driver_of(job: Job, pool: Pool, say: "Say") -> Driver:
    """Drives this process's part of the level."""
    key = api_key(job.target)
    writer = writer_of(job.target, job.workload, job.options, job.seed, job.manner, job.source)

    def make(index: int) -> Prepared:
        return writer.make(job.manner, job.number, index)

    def read(exchange: Exchange) -> Outcome:
        return answers.read(exchange, job.manner.api, secret=key)

    def follow(exchange: Exchange) -> Prepared | None:
        said = answers.text_of(exchange)
        return None if said is None else writer.follow(job.manner, exchange.prepared, said)

    return Driver(
        job.level,
        pool,
        make=make,
        read=read,
        progress=say.progress,
        follow=follow if job.workload.turns else None,
    )


class Say:
    """Frames to the process that started this one."""

    def __init__(self) -> None:
        self._out = sys.stdout.buffer

    def progress(self, share: float) -> None:
        self._write({"share": share})

    def ready(self) -> None:
        self._write({})

    def result(self, said: Said) -> None:
        gc.disable()
        self._write(said)

    def _write(self, value: object) -> None:
        with suppress(BrokenPipeError):
            self._out.write(frame(msgspec.msgpack.encode(value)))
            self._out.flush()


async def _frames() -> asyncio.StreamReader:
    reader = asyncio.StreamReader(limit=1 << 26)
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), sys.stdin.buffer
    )
    return reader


async def _read(reader: asyncio.StreamReader) -> bytes:
    size = int.from_bytes(await reader.readexactly(4), "big")
    return await reader.readexactly(size)


async def _obey(reader: asyncio.StreamReader, work: "asyncio.Task[None]") -> None:
    """Stop the load when told to, or when nobody is there any more to tell."""
    try:
        while not msgspec.msgpack.decode(await _read(reader), type=Told).stop:
            pass
    except asyncio.IncompleteReadError:
        pass
    work.cancel()


async def work(reader: asyncio.StreamReader, say: Say) -> None:
    job = msgspec.msgpack.decode(await _read(reader), type=Job)
    pool = Pool(
        address(job.target.url),
        limit=job.options.answer_limit_bytes,
        connect_timeout_s=job.options.connect_timeout_s,
    )
    try:
        driver = driver_of(job, pool, say)
        driver.prepare()
        say.ready()
        told = msgspec.msgpack.decode(await _read(reader), type=Told)
        task = asyncio.current_task()
        assert task is not None
        obeying = asyncio.create_task(_obey(reader, task))
        driven = await driver.run(told.begin_ns)
        obeying.cancel()
        say.result(Said(driven=driven))
    finally:
        pool.close()
        await asyncio.sleep(0)


async def main() -> None:
    allow_many_sockets()
    reader = await _frames()
    with suppress(asyncio.IncompleteReadError):
        await work(reader, Say())


if __name__ == "__main__":
    asyncio.run(main())

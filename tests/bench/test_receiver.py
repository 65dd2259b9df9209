"""Plain sockets that are received together: what comes, comes whole, and what ends is told."""

import asyncio
import socket
import sys
from collections.abc import Awaitable, Callable
from time import perf_counter_ns

import pytest

from model_optimizer.bench.exchange import Exchange
from model_optimizer.bench.pool import Pool
from model_optimizer.bench.request import Prepared
from model_optimizer.bench.target import address

Answer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
OK = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b"


def exchange(data: bytes) -> Exchange:
    return Exchange(Prepared(data=data), index=0, measured=True, scheduled_ns=perf_counter_ns())


def carried(answer: Answer, *requests: bytes, host: str = "127.0.0.1") -> list[Exchange]:
    """Send all requests at once to a server that treats each connection so."""

    async def go() -> list[Exchange]:
        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        pool = Pool(address(f"http://{host}:{port}"), limit=1 << 24, connect_timeout_s=5)
        found = [exchange(data) for data in requests]
        await asyncio.gather(*(pool.carry(one) for one in found))
        pool.close()
        await asyncio.sleep(0)
        server.close()
        await server.wait_closed()
        return found

    return asyncio.run(go())


def test_a_large_request_and_a_large_answer() -> None:
    """More than a socket takes or gives at once."""
    size = 6 << 20

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(0.05)  # until then the client can only fill the kernel's buffer
        body = await reader.readexactly(size)
        writer.write(OK % (len(body), body))
        await writer.drain()
        writer.close()

    (found,) = carried(answer, b"x" * size)
    assert (found.error, found.status) == (None, 200)
    assert b"".join(found.pieces).endswith(b"\r\n\r\n" + b"x" * size)
    assert found.times_ns == sorted(found.times_ns)


def test_many_at_once() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        number = await reader.readexactly(4)
        for byte in OK % (4, number):
            writer.write(bytes([byte]))
            await asyncio.sleep(0)
        writer.close()

    found = carried(answer, *(b"%04d" % n for n in range(100)))
    assert [b"".join(one.pieces)[-4:] for one in found] == [b"%04d" % n for n in range(100)]
    assert {one.error for one in found} == {None}


@pytest.mark.parametrize(
    ("said", "error"),
    [(b"", "connect"), (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc", "truncated_stream")],
)
@pytest.mark.parametrize("reset", [False, True])
def test_a_server_that_hangs_up(said: bytes, error: str, reset: bool) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(4)
        writer.write(said)
        await writer.drain()
        if said:
            await asyncio.sleep(0.05)  # what was said arrives before the reset
        if reset:
            plug = writer.get_extra_info("socket")
            plug.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            writer.transport.abort()
        else:
            writer.close()

    (found,) = carried(answer, b"1234")
    assert found.error == error
    if reset and not said:
        assert "reset" in (found.detail or "")


def test_a_name_is_looked_up() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(1)
        writer.write(OK % (2, b"ok"))
        await writer.drain()
        writer.close()

    (found,) = carried(answer, b"x", host="localhost")
    assert (found.error, found.status) == (None, 200)


@pytest.mark.skipif(sys.platform != "linux", reason="epoll")
def test_without_epoll_it_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("model_optimizer.bench.pool.receiver", lambda: None)
    test_many_at_once()
    test_a_large_request_and_a_large_answer()

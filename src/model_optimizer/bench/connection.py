"""The client: one HTTP/1.1 connection as an asyncio protocol, and a pool of them.

What happens when bytes arrive is kept to a minimum: take the time, keep the bytes, see whether the answer
is whole. All else waits until the load is over.
"""

import asyncio
import ssl
from collections.abc import Callable
from time import perf_counter_ns
from typing import cast

from .exchange import Exchange
from .target import Address
from .wire import Framer, WireError

_READ_BYTES = 1 << 18


class Connection(asyncio.BufferedProtocol):
    """Carries one exchange at a time. `buffer` is shared by all connections of a loop: what is received
    is copied out of it before the loop turns to the next one."""

    __slots__ = (
        "_buffer",
        "_done",
        "_exchange",
        "_framer",
        "_limit",
        "_on_idle",
        "_transport",
        "closed",
    )

    def __init__(self, buffer: memoryview, limit: int, on_idle: "Callable[[Connection], None]") -> None:
        self._buffer = buffer
        self._limit = limit
        self._on_idle = on_idle
        self._transport: asyncio.Transport | None = None
        self._exchange: Exchange | None = None
        self._framer = Framer()
        self._done: asyncio.Future[None] | None = None
        self.closed = False

    def start(self, exchange: Exchange) -> "asyncio.Future[None]":
        """Write the request. The future is done when the exchange has ended, well or badly."""
        assert self._transport is not None
        assert self._exchange is None
        done = asyncio.get_running_loop().create_future()
        self._framer = Framer()
        exchange.sent_ns = perf_counter_ns()
        if self.closed:
            exchange.fail("connect", "the server closed the connection, or spoke first", exchange.sent_ns)
            done.set_result(None)
            return done
        self._done = done
        self._exchange = exchange
        self._transport.write(exchange.prepared.data)
        return done

    def drop(self) -> None:
        """Nobody waits for the exchange under way any more: forget it and end the connection."""
        self._exchange = self._done = None
        self.abort()

    def abort(self) -> None:
        """End the connection at once; an exchange under way ends with it."""
        self.closed = True
        if self._transport is not None:
            self._transport.abort()

    # What asyncio calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        now = perf_counter_ns()
        exchange = self._exchange
        if exchange is None:  # bytes that nobody asked for
            self.abort()
            return
        piece = bytes(self._buffer[:nbytes])
        exchange.times_ns.append(now)
        exchange.pieces.append(piece)
        exchange.size += nbytes
        try:
            whole = self._framer.feed(piece)
        except WireError as error:
            self._fail(exchange, now, str(error))
            return
        if whole:
            exchange.finished_ns = now
            exchange.status = self._framer.head.status if self._framer.head else None
            self._finish(reusable=self._framer.reusable)
        elif exchange.size > self._limit:
            self._fail(exchange, now, f"the answer is longer than {self._limit} bytes")

    def eof_received(self) -> bool:
        return False  # close our side too

    def connection_lost(self, exc: Exception | None) -> None:
        now = perf_counter_ns()
        self.closed = True
        exchange = self._exchange
        if exchange is None:
            return
        if self._framer.ends_with_connection and exc is None:
            exchange.finished_ns = exchange.times_ns[-1]
        elif exchange.pieces:
            exchange.fail("truncated_stream", "the connection ended before the answer did", now)
        else:
            exchange.fail("connect", f"the connection ended without an answer{_why(exc)}", now)
        self._finish(reusable=False)

    def _fail(self, exchange: Exchange, now: int, detail: str) -> None:
        exchange.fail("wrong_content", detail, now)
        self._finish(reusable=False)

    def _finish(self, *, reusable: bool) -> None:
        self._exchange = None
        done, self._done = self._done, None
        if not reusable:
            self.abort()
        else:
            self._on_idle(self)
        if done is not None and not done.done():
            done.set_result(None)


class Pool:
    """Connections to one server, reused as soon as they are free. There is no upper limit: how many are
    open is how many requests the load has in flight."""

    def __init__(self, where: Address, *, limit: int, connect_timeout_s: float) -> None:
        self._where = where
        self._limit = limit
        self._connect_timeout_s = connect_timeout_s
        self._buffer = memoryview(bytearray(_READ_BYTES))
        self._idle: list[Connection] = []
        self._busy: dict[Exchange, Connection] = {}
        self._tls = ssl.create_default_context() if where.tls else None

    async def carry(self, exchange: Exchange) -> None:
        """Send a request and wait for the end of its exchange, which says how it went."""
        connection = self._take() or await self._open(exchange)
        if connection is None:
            return
        if exchange.finished_ns is not None:  # its time ran out while the connection was made
            self._idle.append(connection)
            return
        self._busy[exchange] = connection
        try:
            await connection.start(exchange)
        finally:
            del self._busy[exchange]
            if exchange.finished_ns is None:
                connection.drop()

    def expire(self, exchange: Exchange, detail: str) -> None:
        """The time limit of a request has passed: it is a failure and its connection is closed."""
        exchange.fail("timeout", detail, perf_counter_ns())
        if connection := self._busy.get(exchange):
            connection.abort()

    def close(self) -> None:
        for connection in (*self._idle, *self._busy.values()):
            connection.abort()
        self._idle.clear()

    def _take(self) -> Connection | None:
        while self._idle:
            connection = self._idle.pop()
            if not connection.closed:
                return connection
        return None

    async def _open(self, exchange: Exchange) -> Connection | None:
        loop = asyncio.get_running_loop()
        try:
            _, connection = await asyncio.wait_for(
                loop.create_connection(
                    lambda: Connection(self._buffer, self._limit, self._idle.append),
                    self._where.host,
                    self._where.port,
                    ssl=self._tls,
                ),
                self._connect_timeout_s,
            )
        except TimeoutError:
            detail = f"no connection within {self._connect_timeout_s:g} s"
            exchange.fail("connect", detail, perf_counter_ns())
        except (OSError, ssl.SSLError) as error:
            exchange.fail("connect", _reason(error), perf_counter_ns())
        else:
            return connection
        return None


def _why(error: Exception | None) -> str:
    return f": {_reason(error)}" if error else ""


def _reason(error: Exception) -> str:
    text = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return text[:200]

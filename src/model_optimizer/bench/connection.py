"""The client: one HTTP/1.1 connection as an asyncio protocol, and a pool of them.

What happens when bytes arrive is kept to a minimum: take the time, keep the bytes, see whether the answer
is whole. All else waits until the load is over.
"""

import asyncio
import ssl
from collections.abc import Callable
from time import perf_counter_ns
from typing import Any, cast

from .exchange import Exchange
from .target import Address
from .wire import END_OF_HEAD, Framer, WireError

# asyncio asks the kernel for 256 KiB at a time. Python makes an object of that size and cuts it down; when
# the small piece is kept, that costs some 10 microseconds and leaves 3 KiB unusable behind. At 64 KiB it
# costs one.
_READ_BYTES = 1 << 16


class Connection(asyncio.Protocol):
    """Carries one exchange at a time. `limit` is how many bytes an answer may have; `on_idle` is called
    when the connection can carry the next one."""

    __slots__ = (
        "_done",
        "_exchange",
        "_framer",
        "_limit",
        "_on_idle",
        "_transport",
        "closed",
    )

    def __init__(self, limit: int, on_idle: "Callable[[Connection], None]") -> None:
        self._limit = limit
        self._on_idle = on_idle
        self._transport: asyncio.Transport | None = None
        self._exchange: Exchange | None = None
        self._framer = Framer([])
        self._done: asyncio.Future[None] | None = None
        self.closed = False

    def start(self, exchange: Exchange) -> "asyncio.Future[None]":
        """Write the request. The future is done when the exchange has ended, well or badly."""
        assert self._transport is not None
        assert self._exchange is None
        done = asyncio.get_running_loop().create_future()
        self._framer = Framer(exchange.pieces)
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
        if hasattr(transport, "max_size"):
            cast("Any", transport).max_size = _READ_BYTES

    def data_received(self, data: bytes) -> None:
        now = perf_counter_ns()
        exchange = self._exchange
        if exchange is None:  # bytes that nobody asked for
            self.abort()
            return
        exchange.times_ns.append(now)
        exchange.pieces.append(data)
        exchange.size += (size := len(data))
        framer = self._framer
        if framer.walks and size >= 4 and not data.endswith(END_OF_HEAD) and exchange.size <= self._limit:
            return  # one more token of a stream, and surely not its end
        try:
            whole = framer.advance()
        except WireError as error:
            self._fail(exchange, now, str(error))
            return
        if whole:
            exchange.finished_ns = now
            exchange.status = framer.head.status if framer.head else None
            self._finish(reusable=framer.reusable)
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
                    lambda: Connection(self._limit, self._idle.append),
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

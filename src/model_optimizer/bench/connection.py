"""One HTTP/1.1 connection of the client.

What happens when bytes arrive is kept to a minimum: take the time, keep the bytes, see whether the answer
is whole. All else waits until the load is over.
"""

import asyncio
from collections.abc import Callable
from time import perf_counter_ns
from typing import Any, Protocol, cast

from .exchange import Exchange
from .wire import END_OF_HEAD, Framer, WireError

# asyncio asks the kernel for 256 KiB at a time. Python makes an object of that size and cuts it down; when
# the small piece is kept, that costs some 10 microseconds and leaves 3 KiB unusable behind. At 64 KiB it
# costs one.
_READ_BYTES = 1 << 16


class Line(Protocol):
    """What a connection needs of its transport."""

    def write(self, data: bytes) -> None: ...

    def abort(self) -> None: ...


class Connection(asyncio.Protocol):
    """Carries one exchange at a time. `limit` is how many bytes an answer may have; `on_idle` is called
    when the connection can carry the next one."""

    __slots__ = (
        "_done",
        "_exchange",
        "_framer",
        "_limit",
        "_on_idle",
        "_pieces",
        "_room",
        "_times",
        "_transport",
        "_walks",
        "closed",
    )

    def __init__(self, limit: int, on_idle: "Callable[[Connection], None]") -> None:
        self._limit = limit
        self._on_idle = on_idle
        self._transport: Line | None = None
        self._exchange: Exchange | None = None
        self._framer = Framer([])
        self._pieces: list[bytes] = []
        self._times: list[int] = []
        self._room = 0
        self._walks = False
        self._done: asyncio.Future[None] | None = None
        self.closed = False

    def start(self, exchange: Exchange) -> "asyncio.Future[None]":
        """Write the request. The future is done when the exchange has ended, well or badly."""
        assert self._transport is not None
        assert self._exchange is None
        done = asyncio.get_running_loop().create_future()
        self._framer = Framer(exchange.pieces)
        self._pieces, self._times = exchange.pieces, exchange.times_ns
        self._room, self._walks = self._limit, False
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

    def connection_made(self, transport: "asyncio.BaseTransport | Line") -> None:
        self._transport = cast("Line", transport)
        if hasattr(transport, "max_size"):
            cast("Any", transport).max_size = _READ_BYTES

    def data_received(self, data: bytes) -> None:
        now = perf_counter_ns()
        exchange = self._exchange
        if exchange is None:  # bytes that nobody asked for
            self.abort()
            return
        self._times.append(now)
        self._pieces.append(data)
        self._room -= (size := len(data))
        if self._walks and size >= 4 and not data.endswith(END_OF_HEAD) and self._room >= 0:
            return  # one more token of a stream, and surely not its end
        framer = self._framer
        try:
            whole = framer.advance()
        except WireError as error:
            self._fail(exchange, now, str(error))
            return
        if whole:
            exchange.finished_ns = now
            exchange.status = framer.head.status if framer.head else None
            self._finish(reusable=framer.reusable)
        elif self._room < 0:
            self._fail(exchange, now, f"the answer is longer than {self._limit} bytes")
        else:
            self._walks = framer.walks

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


def reason(error: Exception) -> str:
    """What went wrong with a socket, in one line."""
    text = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return text[:200]


def _why(error: Exception | None) -> str:
    return f": {reason(error)}" if error else ""

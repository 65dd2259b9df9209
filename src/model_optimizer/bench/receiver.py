"""Receive on many sockets with one callback of the event loop.

asyncio makes an object, looks up a registration and calls through a context for each socket that has bytes.
Here all sockets hang on an epoll of their own, which asyncio sees as one file: one callback then receives
what has come on all of them, which costs about half. TLS and systems without epoll use asyncio's transports.
"""

import asyncio
import select
import socket
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from .connection import Connection

if TYPE_CHECKING:
    from .target import Address

# Python makes an object of the size that is asked for and cuts it down: a small one is cheaper to keep.
_FIRST_BYTES = 1 << 12
_MORE_BYTES = 1 << 16
_AT_ONCE = 512


class Receiver:
    """All plain sockets of one pool."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._epoll = select.epoll()
        self._lines: dict[int, tuple[Callable[[int], bytes], SocketLine]] = {}
        self._loop.add_reader(self._epoll.fileno(), self._ready)

    async def connect(self, where: "Address", connection: Connection) -> None:
        """Connect and hand the connection its line. Raises OSError."""
        found = await _addresses(self._loop, where)
        for number, (family, kind, protocol, _, address) in enumerate(found, 1):
            plug = socket.socket(family, kind, protocol)
            try:
                plug.setblocking(False)
                plug.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                await self._loop.sock_connect(plug, address)
            except OSError:
                plug.close()
                if number == len(found):
                    raise
            except BaseException:
                plug.close()
                raise
            else:
                self._watch(plug, connection)
                return

    def close(self) -> None:
        if not self._epoll.closed:
            for _, line in tuple(self._lines.values()):
                line.abort()
            self._loop.remove_reader(self._epoll.fileno())
            self._epoll.close()

    def forget(self, number: int) -> None:
        """The socket with this file number is about to be closed."""
        if self._lines.pop(number, None) is not None and not self._epoll.closed:
            with suppress(OSError):
                self._epoll.unregister(number)

    def _watch(self, plug: socket.socket, connection: Connection) -> None:
        line = SocketLine(plug, connection, self._loop, self.forget)
        self._lines[plug.fileno()] = (plug.recv, line)
        self._epoll.register(plug.fileno(), select.EPOLLIN)
        connection.connection_made(line)

    def _ready(self) -> None:
        lines = self._lines
        for number, _ in self._epoll.poll(0, _AT_ONCE):
            entry = lines.get(number)
            if entry is None:  # closed by what another one received
                continue
            receive, line = entry
            try:
                data = receive(_FIRST_BYTES)
                if data:
                    line.connection.data_received(data)
                    while len(data) >= _FIRST_BYTES and number in lines:
                        data = receive(_MORE_BYTES)
                        if not data:
                            line.lose(None)
                            break
                        line.connection.data_received(data)
                else:
                    line.lose(None)
            except (BlockingIOError, InterruptedError):
                continue
            except OSError as error:
                line.lose(error)


class SocketLine:
    """One socket, as a connection sees it."""

    __slots__ = ("_forget", "_loop", "_plug", "_waiting", "connection")

    def __init__(
        self,
        plug: socket.socket,
        connection: Connection,
        loop: asyncio.AbstractEventLoop,
        forget: Callable[[int], None],
    ) -> None:
        self._plug = plug
        self._loop = loop
        self._forget = forget
        self._waiting = b""
        self.connection = connection

    def write(self, data: bytes) -> None:
        """Send now; what the kernel does not take is sent when it can."""
        try:
            sent = self._plug.send(data)
        except (BlockingIOError, InterruptedError):
            sent = 0
        except OSError as error:
            self._loop.call_soon(self.lose, error)
            return
        if sent < len(data):
            self._waiting = data[sent:]
            self._loop.add_writer(self._plug.fileno(), self._go_on)

    def lose(self, error: Exception | None) -> None:
        """The other side has gone."""
        if self._plug.fileno() >= 0:
            self._end()
            self.connection.connection_lost(error)

    def abort(self) -> None:
        """End it at once; the connection hears of it in the loop's next turn, as with asyncio."""
        if self._plug.fileno() >= 0:
            self._end()
            self._loop.call_soon(self.connection.connection_lost, None)

    def _end(self) -> None:
        number = self._plug.fileno()
        self._forget(number)
        if self._waiting:
            self._loop.remove_writer(number)
            self._waiting = b""
        self._plug.close()

    def _go_on(self) -> None:
        data, self._waiting = self._waiting, b""
        self._loop.remove_writer(self._plug.fileno())
        self.write(data)


_Address = tuple[int, int, int, str, Any]


async def _addresses(loop: asyncio.AbstractEventLoop, where: "Address") -> Sequence[_Address]:
    host, port, kind = where.host, where.port, socket.SOCK_STREAM
    with suppress(OSError):  # a number needs no thread to be looked up
        return socket.getaddrinfo(host, port, type=kind, flags=socket.AI_NUMERICHOST)
    return await loop.getaddrinfo(host, port, type=kind)


def receiver() -> Receiver | None:
    """None where the system has no epoll."""
    return Receiver() if sys.platform == "linux" else None

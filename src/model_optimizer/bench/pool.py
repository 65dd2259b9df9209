"""Connections to one server, reused as soon as they are free."""

import asyncio
import ssl
from contextlib import suppress
from time import perf_counter_ns

from .connection import Connection, reason
from .exchange import Exchange
from .receiver import Receiver, receiver
from .target import Address


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
        self._receiver: Receiver | None = None
        self._asked = False

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
        if self._receiver is not None:
            self._receiver.close()

    def _take(self) -> Connection | None:
        while self._idle:
            connection = self._idle.pop()
            if not connection.closed:
                return connection
        return None

    async def _open(self, exchange: Exchange) -> Connection | None:
        try:
            return await asyncio.wait_for(self._connect(), self._connect_timeout_s)
        except TimeoutError:
            detail = f"no connection within {self._connect_timeout_s:g} s"
            exchange.fail("connect", detail, perf_counter_ns())
        except (OSError, ssl.SSLError) as error:
            exchange.fail("connect", reason(error), perf_counter_ns())
        return None

    async def _connect(self) -> Connection:
        connection = Connection(self._limit, self._idle.append)
        if not self._asked:
            self._asked = True
            self._receiver = None if self._tls else receiver()
        if self._receiver is not None:
            await self._receiver.connect(self._where, connection)
        else:
            loop, where = asyncio.get_running_loop(), self._where
            await loop.create_connection(lambda: connection, where.host, where.port, ssl=self._tls)
        return connection


def allow_many_sockets() -> None:
    """Raise this process's soft limit of open files to the hard one: each request in flight is one."""
    with suppress(ImportError, ValueError, OSError):
        import resource

        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))

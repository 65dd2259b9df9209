"""A process of our own that is talked to over its standard input and output, from an event loop.

What goes either way are frames: a length of four bytes (big endian) and so many bytes.
"""

import asyncio
import sys
from contextlib import suppress

_END_S = 10.0


def frame(data: bytes) -> bytes:
    """The data as it goes through the pipe."""
    return len(data).to_bytes(4, "big") + data


class Piped:
    """`await Piped.start(module)` runs a module of this package. It ends when its input does."""

    def __init__(self, child: asyncio.subprocess.Process) -> None:
        self._child = child
        self.pid = child.pid

    @classmethod
    async def start(cls, module: str) -> "Piped":
        """Ctrl-C does not reach it: that is for us to pass on."""
        return cls(
            await asyncio.create_subprocess_exec(
                sys.executable,
                *("-P", "-m", module),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                start_new_session=True,
            )
        )

    def send(self, data: bytes) -> None:
        """One frame to it; nothing happens when it is gone."""
        assert self._child.stdin is not None
        with suppress(ConnectionError):
            self._child.stdin.write(frame(data))

    async def receive(self) -> bytes:
        """Its next frame. Raises EOFError when it has ended, or ends within one."""
        assert self._child.stdout is not None
        try:
            size = int.from_bytes(await self._child.stdout.readexactly(4), "big")
            return await self._child.stdout.readexactly(size)
        except (asyncio.IncompleteReadError, ConnectionError):
            raise EOFError from None

    async def end(self, *, at_once: bool = False) -> int | None:
        """End its input and wait until it has ended; `at_once` ends it. What it still says is not heard.

        Its exit code, None where that is not known."""
        transport: asyncio.BaseTransport = getattr(self._child, "_transport")  # noqa: B009 - owns the pipes
        try:
            if self._child.stdin is not None:
                self._child.stdin.close()
            if not at_once:
                await asyncio.wait_for(self._child.wait(), _END_S)
        except TimeoutError:
            pass
        finally:
            transport.close()  # kills it where it still runs; pipes that stay open would hold up the wait
        with suppress(TimeoutError):
            await asyncio.wait_for(self._child.wait(), _END_S)
        return self._child.returncode

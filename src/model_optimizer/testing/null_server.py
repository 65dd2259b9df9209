"""A model server that does no work: it answers as fast as one process can, to find a client's ceiling.

Answers are made once for each number of tokens. Without `--pace-ms` a whole stream is one write; with it
one timer writes the next token of every open stream at once, so that a client receives each by itself.

    python -m model_optimizer.testing.null_server --port 8000 --pace-ms 2
"""

import asyncio
import json
import re
from functools import lru_cache
from typing import cast

_LENGTH = re.compile(rb"content-length:\s*(\d+)", re.IGNORECASE)
_MAX_TOKENS = re.compile(rb'"max_tokens":\s*(\d+)')
_STREAM = re.compile(rb'"stream":\s*true')
_JSON = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b"
_STREAM_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


class NullServer:
    """Answers of one process, and the timer that paces its streams."""

    def __init__(self, *, pace_ms: float = 0.0) -> None:
        self._pace_s = pace_ms / 1000
        self._open: dict[Connection, list[bytes]] = {}

    async def serve(self, port: int) -> asyncio.Server:
        """Listen on 127.0.0.1; port 0 takes a free one."""
        loop = asyncio.get_running_loop()
        if self._pace_s:
            loop.call_later(self._pace_s, self._beat, loop)
        return await loop.create_server(lambda: Connection(self), "127.0.0.1", port, backlog=2048)

    def answer(self, connection: "Connection", path: bytes, body: bytes) -> None:
        """Send what was asked for, now or token by token."""
        if not _STREAM.search(body):
            connection.send(_plain(path))
            return
        found = _MAX_TOKENS.search(body)
        parts = stream_parts(path, int(found[1]) if found else 16)
        if self._pace_s:
            self._open[connection] = list(reversed(parts))
        else:
            connection.send(b"".join(parts))

    def forget(self, connection: "Connection") -> None:
        self._open.pop(connection, None)

    def _beat(self, loop: asyncio.AbstractEventLoop) -> None:
        loop.call_later(self._pace_s, self._beat, loop)
        for connection, parts in tuple(self._open.items()):
            connection.send(parts.pop())
            if not parts:
                del self._open[connection]


class Connection(asyncio.Protocol):
    """Reads requests; one is whole when its body is as long as its header says."""

    def __init__(self, server: NullServer) -> None:
        self._server = server
        self._transport: asyncio.Transport | None = None
        self._read = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._server.forget(self)

    def data_received(self, data: bytes) -> None:
        self._read += data
        end = self._read.find(b"\r\n\r\n")
        if end < 0:
            return
        found = _LENGTH.search(self._read, 0, end)
        whole = end + 4 + (int(found[1]) if found else 0)
        if len(self._read) >= whole:
            path = self._read.split(b" ", 2)[1]
            body, self._read = self._read[end + 4 : whole], self._read[whole:]
            self._server.answer(self, path, body)

    def send(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)


@lru_cache(maxsize=256)
def stream_parts(path: bytes, tokens: int) -> tuple[bytes, ...]:
    """The writes of one stream: a head with the first token, tokens, and the end."""
    chat = b"chat" in path
    part = b'"delta":{"content":"word "}' if chat else b'"text":"word "'
    head = b'data: {"id":"cmpl-0123456789abcdef","object":"text_completion","created":1,"model":"null",'
    event = head + b'"choices":[{"index":0,%b,"finish_reason":null}]}' % part
    usage = {"prompt_tokens": 1, "completion_tokens": tokens, "total_tokens": tokens + 1}
    last = b"data: " + json.dumps({"choices": [], "usage": usage}).encode()
    pieces = [_chunk(event)] * tokens
    pieces[0] = _STREAM_HEAD + pieces[0]
    pieces[-1] += _chunk(last) + _chunk(b"data: [DONE]") + b"0\r\n\r\n"
    return tuple(pieces)


def _chunk(line: bytes) -> bytes:
    return b"%x\r\n%b\n\n\r\n" % (len(line) + 2, line)


@lru_cache(maxsize=16)
def _plain(path: bytes) -> bytes:
    usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
    if path.endswith(b"/models"):
        content: dict[str, object] = {"data": [{"id": "null"}]}
    elif path.endswith(b"/embeddings"):
        content = {"data": [{"index": 0, "embedding": [0.1]}], "usage": usage}
    else:
        part = {"message": {"content": "word"}} if b"chat" in path else {"text": "word"}
        content = {"choices": [{"index": 0, "finish_reason": "stop", **part}], "usage": usage}
    body = json.dumps(content).encode()
    return _JSON % (len(body), body)


async def _main(port: int, pace_ms: float) -> None:
    server = await NullServer(pace_ms=pace_ms).serve(port)
    address = server.sockets[0].getsockname()
    print(f"listening on http://127.0.0.1:{address[1]}", flush=True)  # noqa: T201 - the answer of this program
    await server.serve_forever()


def main() -> None:
    import argparse
    from contextlib import suppress

    parser = argparse.ArgumentParser(description="A model server that does no work.")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--pace-ms", type=float, default=0.0)
    given = parser.parse_args()
    with suppress(KeyboardInterrupt):
        asyncio.run(_main(given.port, given.pace_ms))


if __name__ == "__main__":
    main()

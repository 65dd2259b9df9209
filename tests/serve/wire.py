"""A client for tests: one request, its status and body, or its events."""

import http.client
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import urlsplit


def post(url: str, path: str, body: Any, *, key: str | None = None) -> tuple[int, Any]:
    """Status and JSON body of an answer. `body` is sent as it is when it is bytes."""
    connection = _connect(url)
    try:
        connection.request("POST", path, body if isinstance(body, bytes) else json.dumps(body), _headers(key))
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read() or b"null")
    finally:
        connection.close()


def get(url: str, path: str, *, key: str | None = None) -> tuple[int, bytes]:
    connection = _connect(url)
    try:
        connection.request("GET", path, headers=_headers(key))
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def events(url: str, path: str, body: Any) -> list[Any]:
    """The chunks of a stream; its last event must be [DONE]."""
    found = list(stream(url, path, body))
    assert found[-1] == "[DONE]"
    return [json.loads(event) for event in found[:-1]]


def stream(url: str, path: str, body: Any) -> Iterator[str]:
    """The data of each event as it comes; leaving early hangs up."""
    connection = _connect(url)
    try:
        connection.request("POST", path, json.dumps({**body, "stream": True}), _headers(None))
        answer = connection.getresponse()
        assert answer.status == 200
        assert answer.headers["Content-Type"].startswith("text/event-stream")
        while line := answer.readline():
            line.decode("utf-8")  # every line is whole characters
            if line.startswith(b"data: "):
                yield line[6:].decode().strip("\n")
    finally:
        connection.close()


def at_once(url: str, path: str, bodies: list[Any]) -> list[tuple[int, Any]]:
    """Many requests at the same time; answers in the order of the requests."""
    with ThreadPoolExecutor(len(bodies)) as pool:
        return list(pool.map(lambda body: post(url, path, body), bodies))


def _connect(url: str) -> http.client.HTTPConnection:
    parts = urlsplit(url)
    assert parts.hostname == "127.0.0.1"
    return http.client.HTTPConnection(parts.hostname, parts.port, timeout=60)


def _headers(key: str | None) -> dict[str, str]:
    return {"Content-Type": "application/json", **({"Authorization": f"Bearer {key}"} if key else {})}

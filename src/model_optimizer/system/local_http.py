"""One request to a server that we started on this machine, and whether a port is free."""

import errno
import http.client
import json
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from model_optimizer.core import HostError

LARGEST_REPLY = 8 * 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """`body` is cut at 8 MiB."""

    status: int
    body: bytes


def ask(
    url: str,
    *,
    body: Mapping[str, Any] | None = None,
    key: str | None = None,
    timeout_s: float = 5.0,
) -> Reply | None:
    """GET, or POST with a JSON body; None when nobody answers in time. Proxies are not asked."""
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "127.0.0.1", parts.port, timeout=timeout_s)
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    try:
        if body is None:
            connection.request("GET", parts.path, headers=headers)
        else:
            headers["Content-Type"] = "application/json"
            connection.request("POST", parts.path, json.dumps(body).encode(), headers)
        answer = connection.getresponse()
        return Reply(status=answer.status, body=answer.read(LARGEST_REPLY))
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()


def require_free(host: str, port: int) -> None:
    """Raises HostError when another program listens on this port, or the system does not give it to us."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            used = error.errno == errno.EADDRINUSE
            raise HostError(
                f"port {port} of {host} is in use" if used else f"port {port} of {host} cannot be used",
                cause=(error.strerror or str(error),),
                hint=("name another one with --port, or leave it out to get a free one",),
                reference="port-in-use",
            ) from error


def listens(host: str, port: int, timeout_s: float = 3.0) -> bool:
    """Whether anything takes a connection there."""
    try:
        with socket.create_connection((host, port), timeout=timeout_s):
            return True
    except OSError:
        return False

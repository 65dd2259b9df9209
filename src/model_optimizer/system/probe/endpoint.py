"""Ask a running model server what it is. Nothing is changed there; the key goes to no other address."""

import http.client
import ipaddress
import json
import os
import re
import socket
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from model_optimizer.core import UsageError
from model_optimizer.core.endpoint import Endpoint, Failure, Reply

from . import network
from .timed import Reader, together
from .world import World, attempt

KEYS = ("MOPT_API_KEY", "OPENAI_API_KEY", "VLLM_API_KEY")
ALL_S = 9.0
CONNECT_S = 2.0
ASK_S = 2.5
GENERATE_S = 6.0
_TEXT_BYTES = 64 << 10
_FOREIGN = "https://another-site.example"
_TAIL = re.compile(r"/v1(?:/(?:models|chat/completions|completions|embeddings))?/?$|/+$")
_OWNERS = {
    "vllm": "vLLM", "sglang": "SGLang", "llamacpp": "llama.cpp", "tensorrt_llm": "TensorRT-LLM",
    "library": "Ollama", "model-optimizer": "Model-Optimizer",
}  # fmt: skip


@dataclass(slots=True)
class _Line:
    """Where requests go. `deadline` is for all of them together."""

    scheme: str
    host: str
    port: int
    key: str | None
    deadline: float
    replies: dict[str, Reply] = field(default_factory=dict[str, Reply])

    def ask(self, name: str, path: str, **more: Any) -> Reply:
        left = self.deadline - time.monotonic()
        reply = (
            Reply(failure="silent", detail="no time was left")
            if left <= 0
            else _ask(self, path, left, **more)
        )
        self.replies[name] = reply
        return reply


def read(url: str, *, wanted: str | None = None, environ: Mapping[str, str] | None = None) -> Endpoint:
    """What answers at a URL, within 10 s. UsageError when it is no URL of a server.

    A key is read from the environment (MOPT_API_KEY, OPENAI_API_KEY, VLLM_API_KEY) and never shown.
    """
    place = _parts(url)
    given = os.environ if environ is None else environ
    address = f"[{place[1]}]" if ":" in place[1] else place[1]
    nothing = Endpoint(
        url=f"{place[0]}://{address}:{place[2]}",
        replies={"models": Reply(failure="silent", detail="no answer")},
    )
    # A name service that hangs, or a server that sends a byte a second, keeps no limit of a socket.
    reader = Reader(read=lambda: _read(place, wanted, given), limit_s=ALL_S + 0.5, otherwise=nothing)
    found, _ = together({"endpoint": reader})
    return found["endpoint"]


def _read(place: tuple[str, str, int, str], wanted: str | None, given: Mapping[str, str]) -> Endpoint:
    scheme, host, port, prefix = place
    key_from = next((name for name in KEYS if given.get(name)), None)
    line = _Line(scheme, host, port, given[key_from].strip() if key_from else None, time.monotonic() + ALL_S)
    address = f"[{host}]" if ":" in host else host
    found: dict[str, Any] = {"url": f"{scheme}://{address}:{port}", "prefix": prefix, "wanted": wanted}
    found["key_from"] = key_from
    found |= _around(host, port)
    models = line.ask("models", f"{prefix}/v1/models")
    if models.failure is None:
        found |= _identity(line, models, prefix)
        _generate(line, prefix, found.get("models"), wanted)
    return Endpoint(**found, replies=line.replies)


def _parts(url: str) -> tuple[str, str, int, str]:
    text = url if "://" in url else f"http://{url}"
    hint = ("write it like http://127.0.0.1:8000",)
    try:
        parts = urlsplit(text)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise UsageError(f"`{url}` is no address of a server", cause=(str(error),), hint=hint) from error
    if parts.scheme not in ("http", "https") or not host or re.search(r"[\s\x00-\x1f]", text):
        raise UsageError(f"`{url}` is no address of a server", hint=hint)
    if parts.username or parts.password:
        why = "a key does not belong into an address, where logs and the shell's history keep it"
        raise UsageError(
            "the address holds a password", cause=(why,), hint=("put the key into MOPT_API_KEY",)
        )
    return parts.scheme, host, port or (443 if parts.scheme == "https" else 80), _TAIL.sub("", parts.path)


def _ask(
    line: _Line,
    path: str,
    left_s: float,
    *,
    method: str = "GET",
    body: Mapping[str, Any] | None = None,
    keyed: bool = True,
    limit_s: float = ASK_S,
    stream: bool = False,
) -> Reply:
    """One request on a connection of its own. Redirects are not followed, proxies not asked."""
    begun = time.monotonic()
    limit = min(left_s, limit_s)
    headers = {"Accept": "text/event-stream" if stream else "*/*", "User-Agent": "mopt-doctor"}
    if keyed and line.key:
        headers["Authorization"] = f"Bearer {line.key}"
    if method == "OPTIONS":
        headers |= {"Origin": _FOREIGN, "Access-Control-Request-Method": "POST"}
        headers["Access-Control-Request-Headers"] = "content-type"
    connection: http.client.HTTPConnection | None = None
    try:
        connection = _connected(line, min(limit, CONNECT_S))
        assert connection.sock is not None
        connection.sock.settimeout(limit)
        payload = None if body is None else json.dumps(body).encode()
        connection.request(method if body is None else "POST", path, payload, _typed(headers, body))
        answer = connection.getresponse()
        text, events, ended = _content(answer, begun + limit)
        return Reply(
            status=answer.status,
            kind=(answer.getheader("Content-Type") or "").partition(";")[0].strip().lower()[:100],
            text=text,
            server=(answer.getheader("Server") or "")[:100],
            location=(answer.getheader("Location") or "")[:300],
            origin=(answer.getheader("Access-Control-Allow-Origin") or "")[:100],
            took_ms=(time.monotonic() - begun) * 1000,
            events=events,
            ended=ended,
        )
    except (OSError, http.client.HTTPException, ValueError) as error:
        return _failed(error, time.monotonic() - begun)
    finally:
        if connection:
            connection.close()


def _typed(headers: dict[str, str], body: object) -> dict[str, str]:
    return headers if body is None else {**headers, "Content-Type": "application/json"}


def _connected(line: _Line, limit_s: float) -> http.client.HTTPConnection:
    """Connected already, so that a failure to connect is told from a failure to answer."""
    if line.scheme == "https":
        connection: http.client.HTTPConnection = http.client.HTTPSConnection(
            line.host, line.port, timeout=limit_s, context=ssl.create_default_context()
        )
    else:
        connection = http.client.HTTPConnection(line.host, line.port, timeout=limit_s)
    connection.connect()
    return connection


def _content(answer: http.client.HTTPResponse, until: float) -> tuple[str, int, bool]:
    """The text as far as it came in time, the events in it, and whether it said [DONE]."""
    parts: list[bytes] = []
    size = 0
    while size < _TEXT_BYTES:
        if time.monotonic() > until:
            raise TimeoutError("the answer does not end")
        part = answer.read1(_TEXT_BYTES - size)
        if not part:
            break
        parts.append(part)
        size += len(part)
    text = b"".join(parts).decode("utf-8", errors="replace")
    events = [line[5:].strip() for line in text.splitlines() if line.startswith("data:")]
    return text, sum(event != "[DONE]" for event in events), "[DONE]" in events


def _failed(error: Exception, took_s: float) -> Reply:
    detail = re.sub(r"\s+", " ", str(error) or type(error).__name__)[:200]
    kinds: tuple[tuple[type[BaseException], Failure], ...] = (
        (ssl.SSLCertVerificationError, "certificate"),
        (ssl.SSLError, "no tls"),
        (socket.gaierror, "no name"),
        (UnicodeError, "no name"),
        (ConnectionRefusedError, "refused"),
        (TimeoutError, "silent"),
        (http.client.RemoteDisconnected, "closed"),
        (ConnectionError, "closed"),
        (http.client.IncompleteRead, "closed"),
        (http.client.HTTPException, "no http"),
        (OSError, "unreachable"),
    )
    failure: Failure = "no http"
    if isinstance(error, TimeoutError) and "handshake" in detail:  # connected, and waiting for plain words
        return Reply(failure="no tls", detail=detail, took_ms=took_s * 1000)
    for kind, name in reversed(kinds):  # the first of the list that fits
        if isinstance(error, kind):
            failure = name
    return Reply(failure=failure, detail=detail, took_ms=took_s * 1000)


# -- what stands around it on this machine


def _around(host: str, port: int) -> dict[str, Any]:
    local = _is_local(host)
    found: dict[str, Any] = {"local": local}
    if not local:
        return found
    world = World()
    sockets = network.listening(world)
    here = [everywhere for number, everywhere in (sockets or {}).values() if number == port]
    found["everywhere"] = any(here) if here else None
    found["neighbours"] = tuple(
        (s.program, s.port) for s in network.read(world).servers or () if s.port != port
    )
    if any(here) and world.which("docker"):
        found["published"] = _published(world, port)
    return found


def _is_local(host: str) -> bool | None:
    """Whether an address is this machine's; None when its name is not known."""
    known = attempt(lambda: [row[4][0] for row in socket.getaddrinfo(host, None, proto=socket.IPPROTO_TCP)])
    if not known:
        return None
    if all(ipaddress.ip_address(str(one).partition("%")[0]).is_loopback for one in known):
        return True
    return any(_can_bind(str(one)) for one in known)


def _can_bind(address: str) -> bool:
    """A machine gives its own addresses away and no others."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_STREAM) as trial:
            trial.bind((address, 0))
    except OSError:
        return False
    return True


def _published(world: World, port: int) -> str | None:
    text = world.ask(["docker", "ps", "--format", "{{.Names}}\t{{.Ports}}"], 1.5)
    rows = (line.partition("\t") for line in (text or "").splitlines())
    return next((name[:60] for name, _, ports in rows if f":{port}->" in ports), None)


# -- what it is


def _identity(line: _Line, models: Reply, prefix: str) -> dict[str, Any]:
    served = names(models)
    found: dict[str, Any] = {"models": served}
    if served is None and prefix:
        line.ask("root_models", "/v1/models")
    if served is None:
        line.ask("root", f"{prefix}/")
    elif line.key:
        line.ask("keyless_models", f"{prefix}/v1/models", keyed=False)
    found["engine"] = _engine(models, line)
    if served is not None:
        found["version"] = _version(line, prefix, found["engine"])
        line.ask("preflight", f"{prefix}/v1/chat/completions", method="OPTIONS", keyed=False)
    return found


def names(reply: Reply) -> tuple[str, ...] | None:
    """The served models; None when the answer is no list of models."""
    rows = _rows(reply)
    return None if rows is None else tuple(str(row.get("id", ""))[:200] for row in rows if row.get("id"))


def _rows(reply: Reply) -> list[dict[str, Any]] | None:
    found = attempt(lambda: json.loads(reply.text)["data"]) if reply.status == 200 else None
    return [row for row in found if isinstance(row, dict)] if isinstance(found, list) else None


def _engine(models: Reply, line: _Line) -> str | None:
    owners = {str(row.get("owned_by", "")).lower() for row in _rows(models) or ()}
    known = next((_OWNERS[owner] for owner in owners if owner in _OWNERS), None)
    if known is None and models.server.lower().startswith("llama.cpp"):
        return "llama.cpp"
    if known is None and "Ollama is running" in line.replies.get("root", Reply()).text:
        return "Ollama"
    return known


def _version(line: _Line, prefix: str, engine: str | None) -> str | None:
    path = {"Ollama": "/api/version", "SGLang": "/get_server_info"}.get(engine or "", "/version")
    reply = line.ask("version", f"{prefix}{path}", limit_s=1.5)
    value = attempt(lambda: json.loads(reply.text)["version"]) if reply.status == 200 else None
    return str(value)[:60] if isinstance(value, str) else None


# -- one plain and one streamed request


def _generate(line: _Line, prefix: str, served: tuple[str, ...] | None, wanted: str | None) -> None:
    if not served or (wanted is not None and wanted not in served):
        return
    model = wanted or served[0]
    said = {"model": model, "max_tokens": 4, "temperature": 0}
    chat = {**said, "messages": [{"role": "user", "content": "Hello"}]}
    plain = {**said, "prompt": "Hello"}
    path, body = "/v1/chat/completions", chat
    if line.ask("chat", f"{prefix}{path}", body=chat, limit_s=GENERATE_S).status != 200:
        if line.replies["chat"].failure:
            return
        path, body = "/v1/completions", plain
        if line.ask("completion", f"{prefix}{path}", body=plain, limit_s=GENERATE_S).status != 200:
            if not line.replies["completion"].failure:
                line.ask("embedding", f"{prefix}/v1/embeddings", body={"model": model, "input": "Hello"})
            return
    line.ask("stream", f"{prefix}{path}", body={**body, "stream": True}, stream=True, limit_s=GENERATE_S)

"""A model server that is exactly as slow, broken or odd as it is told to be.

It speaks the OpenAI interface (completions, chat, embeddings, rerank, score) and keeps a record of when it
really wrote each token, so that what a client measures can be compared with the truth. In a test:

    with FakeServer(Behaviour(ttft_ms=5, tpot_ms=1)) as server:
        ... server.url ... server.records

As a program: `python -m model_optimizer.testing.fake_server --port 8000 --ttft-ms 20`; `GET /record` gives
the record as JSON.
"""

import asyncio
import json
import random
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from time import perf_counter_ns
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, cast

if TYPE_CHECKING:
    import ssl

_APIS = {
    "/v1/completions": "completions",
    "/v1/chat/completions": "chat",
    "/v1/embeddings": "embeddings",
    "/v1/rerank": "rerank",
    "/v1/score": "score",
}
_BODY_LIMIT = 64 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Behaviour:
    """How the server behaves. Times are in milliseconds, shares and counts plain numbers.

    `fail_every` n fails each n-th request with `fail_status`; `truncate_every` n cuts each n-th answer
    off after `truncate_after` tokens; `stall_every` n pauses each n-th stream for `stall_ms` after
    `stall_after` tokens; `status` is the answer to all requests. `refuses` are members of a
    request that it does not know (400). `usage` "negative" reports nonsense. `endless` streams never end,
    `silent` never answers. `split` writes that many bytes at a time. `token_ids` false refuses prompts
    that are lists of ids. `template_tokens` are added to each chat prompt, and `tokens_per_word` is what
    it counts for a word. Of `slots` (0: any number) requests at a time are worked on, others wait their turn.
    `header_drip_ms` sends the header of an answer byte by byte with so long a pause, `models` are other names
    that it serves (404 for the rest), `echo` answers with the last word of what it was asked.
    `tensors` are the inputs (name, shape; -1 is free) of the one model that it serves, by the Open Inference
    Protocol. `mix_every` n answers each n-th request with the last word of the one before it where both are
    under way, `short_every` n ends each n-th answer in order, after half of its tokens. With `preempts` its
    metrics page counts a preemption for each request. Each token takes
    `drift_ms` longer than that of the request before.
    """

    ttft_ms: float = 2.0
    tpot_ms: float = 0.5
    jitter_ms: float = 0.0
    header_delay_ms: float = 0.0
    stall_every: int = 0
    stall_after: int = 1
    stall_ms: float = 0.0
    seed: int = 0
    model: str = "fake"
    apis: frozenset[str] = frozenset(_APIS.values())
    tensors: tuple[tuple[str, tuple[int, ...]], ...] = ()
    status: int = 200
    fail_every: int = 0
    fail_status: int = 500
    truncate_every: int = 0
    truncate_after: int = 1
    html: bool = False
    api_key: str | None = None
    usage: Literal["yes", "no", "negative"] = "yes"
    streams: bool = True
    endless: bool = False
    silent: bool = False
    closes: bool = False
    crlf: bool = False
    comments: bool = False
    split: int = 0
    huge_line_bytes: int = 0
    tokens_per_chunk: int = 1
    refuses: frozenset[str] = frozenset()
    token_ids: bool = True
    template_tokens: int = 0
    tokens_per_word: int = 1
    slots: int = 0
    header_drip_ms: float = 0.0
    models: frozenset[str] | None = None
    echo: bool = False
    mix_every: int = 0
    short_every: int = 0
    preempts: bool = False
    drift_ms: float = 0.0


@dataclass(slots=True, kw_only=True)
class Record:
    """What the server did for one request. Times are `perf_counter_ns`, taken right before each write."""

    path: str
    body: Mapping[str, Any]
    received_ns: int
    wrote_ns: list[int] = field(default_factory=list[int])
    output_tokens: int = 0
    status: int = 200


class FakeServer:
    """Runs in a thread of its own on 127.0.0.1 while it is entered."""

    def __init__(
        self, behaviour: Behaviour | None = None, *, port: int = 0, tls: "ssl.SSLContext | None" = None
    ) -> None:
        self.behaviour = behaviour or Behaviour()
        self.records: list[Record] = []
        self.connections = 0
        self._working = 0
        self.port = port
        self._tls = tls
        self._dice = random.Random(self.behaviour.seed)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="fake-server", daemon=True)
        self._ready = threading.Event()
        self._stop = asyncio.Event()
        self._slots = asyncio.Semaphore(self.behaviour.slots or 1 << 30)

    @property
    def url(self) -> str:
        return f"http{'s' if self._tls else ''}://127.0.0.1:{self.port}"

    def __enter__(self) -> "FakeServer":
        self._thread.start()
        self._ready.wait()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """Close all connections and end; a second call does nothing."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stop.set)
            self._thread.join()

    async def serve(self) -> None:
        """Serve until stopped."""
        server = await asyncio.start_server(
            self._connection, "127.0.0.1", self.port, limit=_BODY_LIMIT, ssl=self._tls
        )
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        await self._stop.wait()
        server.close()
        others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self.serve())
        finally:
            self._loop.close()

    # One connection.

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while await self._request(reader, _Out(writer, self.behaviour)):
                pass
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            writer.close()

    async def _request(self, reader: asyncio.StreamReader, out: "_Out") -> bool:
        """One request and its answer; whether the connection goes on."""
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        received = perf_counter_ns()
        method, path, _ = head.split("\r\n", 1)[0].split(" ")
        headers = {k.strip().lower(): v.strip() for k, _, v in (x.partition(":") for x in head.split("\r\n"))}
        raw = await reader.readexactly(min(_BODY_LIMIT, int(headers.get("content-length", 0))))
        if method == "GET":
            return await self._get(path, headers, out)
        record = Record(path=path, body=json.loads(raw or b"{}"), received_ns=received)
        self.records.append(record)
        return await self._answer(record, headers, out)

    async def _get(self, path: str, headers: Mapping[str, str], out: "_Out") -> bool:
        if not self._allowed(headers):
            return await out.error(401, "Incorrect API key provided")
        if path == "/v1/models":
            return await out.json(
                {"object": "list", "data": [{"id": self.behaviour.model, "object": "model"}]}
            )
        if self.behaviour.tensors and path == f"/v2/models/{self.behaviour.model}":
            return await out.json(
                {"inputs": [{"name": n, "datatype": "FP32", "shape": s} for n, s in self.behaviour.tensors]}
            )
        if path == "/record":
            rows = [{"received_ns": r.received_ns, "wrote_ns": r.wrote_ns} for r in self.records]
            return await out.json({"records": rows})
        if path == "/metrics" and self.behaviour.preempts:
            return await out.html(f"vllm:num_preemptions_total {len(self.records)}\n")
        return await (out.json({}) if path == "/health" else out.error(404, "Not Found"))

    def _allowed(self, headers: Mapping[str, str]) -> bool:
        key = self.behaviour.api_key
        return key is None or headers.get("authorization") == f"Bearer {key}"

    async def _answer(self, record: Record, headers: Mapping[str, str], out: "_Out") -> bool:
        does, body = self.behaviour, record.body
        api = _APIS.get(record.path)
        if does.tensors and record.path == f"/v2/models/{does.model}/infer":
            record.wrote_ns.append(perf_counter_ns())
            return await out.json({"outputs": [{"name": "y", "shape": [1, 1], "data": [0.5]}]})
        number = len(self.records)
        await asyncio.sleep(does.header_delay_ms / 1000)
        if does.silent:
            await asyncio.sleep(3600)
        if not self._allowed(headers):
            return await out.error(401, f"Incorrect API key provided: {headers.get('authorization')}")
        if api is None or api not in does.apis:
            return await out.error(404, "Not Found")
        if does.html:
            return await out.html("<html><body><h1>It works!</h1></body></html>")
        unknown = sorted(does.refuses & body.keys())
        if unknown or (not does.token_ids and isinstance(body.get("prompt", body.get("input")), list)):
            return await out.error(400, f"unknown member: {unknown[0]}" if unknown else "prompt must be text")
        failing = does.fail_every and number % does.fail_every == 0
        if does.status != 200 or failing:
            record.status = does.fail_status if failing else does.status
            return await out.error(record.status, "told to fail")
        if does.models is not None and body.get("model") not in does.models:
            return await out.error(404, f"The model `{body.get('model')}` does not exist.")
        async with self._slots:
            if out.gone:  # nobody waits for it any more
                raise ConnectionResetError
            self._working += 1
            try:
                return await self._work(record, api, number, out)
            finally:
                self._working -= 1

    async def _work(self, record: Record, api: str, number: int, out: "_Out") -> bool:
        does, body = self.behaviour, record.body
        if api in ("completions", "chat"):
            return await self._generate(record, api, number, out)
        await asyncio.sleep(self._wait(does.ttft_ms))
        record.wrote_ns.append(perf_counter_ns())
        return await out.json(_pooled(api, body, self._usage(api, body, 0)))

    async def _generate(self, record: Record, api: str, number: int, out: "_Out") -> bool:
        does, body = self.behaviour, record.body
        short = bool(does.short_every) and number % does.short_every == 0
        record.output_tokens = tokens = int(body.get("max_tokens", 16)) // (2 if short else 1)
        cut = bool(does.truncate_every) and number % does.truncate_every == 0
        if not (body.get("stream") and does.streams):
            await asyncio.sleep(self._wait(does.ttft_ms + does.tpot_ms * (tokens - 1)))
            record.wrote_ns.append(perf_counter_ns())
            return await out.json(_whole(api, tokens, self._usage(api, body, tokens)), cut=cut)
        await out.begin_stream()
        if does.comments:
            await out.raw_event(b": keep-alive")
        if api == "chat":
            await out.event(_event(api, {"role": "assistant", "content": ""}))
        stall = does.stall_after if does.stall_every and number % does.stall_every == 0 else None
        count = 0
        mixed = does.mix_every and number % does.mix_every == 0 and self._working > 1
        said = self.records[number - 2].body if mixed else body
        while count < tokens or does.endless:
            await asyncio.sleep(
                self._wait((does.tpot_ms if count else does.ttft_ms) + number * does.drift_ms)
            )
            if count == stall:
                await asyncio.sleep(does.stall_ms / 1000)
            step = min(does.tokens_per_chunk, tokens - count) if not does.endless else 1
            word = (f"{_last_word(said)} " if does.echo else "tök ") * step + "x" * does.huge_line_bytes
            record.wrote_ns.append(perf_counter_ns())
            await out.event(_event(api, word, last=count + step >= tokens and not does.endless))
            count += step
            if cut and count >= does.truncate_after:
                return out.cut()
        asked = cast("dict[str, Any]", body.get("stream_options") or {}).get("include_usage")
        if asked and (usage := self._usage(api, body, tokens)):
            await out.event({"choices": [], "usage": usage})
        await out.raw_event(b"data: [DONE]")
        return await out.end_stream()

    def _wait(self, ms: float) -> float:
        return max(0.0, ms + self._dice.uniform(-1, 1) * self.behaviour.jitter_ms) / 1000

    def _usage(self, api: str, body: Mapping[str, Any], output: int) -> dict[str, int] | None:
        does = self.behaviour
        if does.usage == "no":
            return None
        prompt = _prompt_tokens(body) * does.tokens_per_word + (does.template_tokens if api == "chat" else 0)
        sign = -1 if does.usage == "negative" else 1
        return {"prompt_tokens": prompt, "completion_tokens": sign * output, "total_tokens": prompt + output}


class _Out:
    """Writes answers, in the manner of the behaviour."""

    def __init__(self, writer: asyncio.StreamWriter, behaviour: Behaviour) -> None:
        self._writer = writer
        self._does = behaviour

    @property
    def gone(self) -> bool:
        return self._writer.transport.is_closing()

    async def json(self, value: object, status: int = 200, *, cut: bool = False) -> bool:
        body = json.dumps({k: v for k, v in cast("dict[str, Any]", value).items() if v is not None}).encode()
        return await self._whole(body, "application/json", status, cut=cut)

    async def html(self, text: str) -> bool:
        return await self._whole(text.encode(), "text/html", 200)

    async def error(self, status: int, message: str) -> bool:
        return await self.json({"error": {"message": message, "code": status}}, status)

    async def begin_stream(self) -> None:
        lines = [b"HTTP/1.1 200 OK", b"Content-Type: text/event-stream; charset=utf-8"]
        lines += [b"Transfer-Encoding: chunked", *([b"Connection: close"] if self._does.closes else [])]
        head = b"\r\n".join([*lines, b"", b""])
        for byte in head if self._does.header_drip_ms else b"":
            await self._write(bytes([byte]))
            await asyncio.sleep(self._does.header_drip_ms / 1000)
        if not self._does.header_drip_ms:
            await self._write(head)

    async def event(self, value: Mapping[str, Any]) -> None:
        await self.raw_event(b"data: " + json.dumps(value, ensure_ascii=False).encode())

    async def raw_event(self, line: bytes) -> None:
        data = line + (b"\r\n\r\n" if self._does.crlf else b"\n\n")
        await self._write(b"%x\r\n%b\r\n" % (len(data), data))

    async def end_stream(self) -> bool:
        await self._write(b"0\r\n\r\n")
        return not self._does.closes

    def cut(self) -> bool:
        self._writer.close()
        return False

    async def _whole(self, body: bytes, kind: str, status: int, *, cut: bool = False) -> bool:
        close = "Connection: close\r\n" if self._does.closes else ""
        head = f"HTTP/1.1 {status} Said\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n{close}\r\n"
        await self._write(head.encode() + (body[: len(body) // 2] if cut else body))
        return self.cut() if cut else not self._does.closes

    async def _write(self, data: bytes) -> None:
        step = self._does.split or len(data)
        for begin in range(0, len(data), step):
            self._writer.write(data[begin : begin + step])
            await self._writer.drain()
            if self._does.split:
                await asyncio.sleep(0)


def _last_word(body: Mapping[str, Any]) -> str:
    messages = cast("list[dict[str, Any]]", body.get("messages") or [{"content": body.get("prompt")}])
    words = str(messages[-1]["content"]).split()
    return words[-1] if words else ""


def _event(api: str, content: object, *, last: bool = False) -> dict[str, Any]:
    choice: dict[str, Any] = {"index": 0, "finish_reason": "length" if last else None}
    if api == "chat":
        choice["delta"] = content if isinstance(content, dict) else {"content": content}
    else:
        choice["text"] = content
    return {"id": "fake", "object": "chunk", "choices": [choice], "usage": None}


def _whole(api: str, tokens: int, usage: object) -> dict[str, Any]:
    text = "tök " * tokens
    part = {"message": {"role": "assistant", "content": text}} if api == "chat" else {"text": text}
    return {"id": "fake", "choices": [{"index": 0, "finish_reason": "length", **part}], "usage": usage}


def _pooled(api: str, body: Mapping[str, Any], usage: object) -> dict[str, Any]:
    texts = cast("list[Any]", body.get("documents") or body.get("text_2") or [body.get("input")])
    if api == "embeddings":
        return {"object": "list", "data": [{"index": 0, "embedding": [0.1, 0.2]}], "usage": usage}
    if api == "rerank":
        return {"results": [{"index": i, "relevance_score": 0.5} for i in range(len(texts))], "usage": usage}
    return {"data": [{"index": i, "score": 0.5} for i in range(len(texts))], "usage": usage}


def _prompt_tokens(body: Mapping[str, Any]) -> int:
    """A token for each id or word."""
    given: Any = body.get("prompt", body.get("input"))
    if isinstance(given, list):
        return len(cast("list[object]", given))
    if isinstance(given, str):
        return len(given.split())
    if messages := cast("list[dict[str, Any]]", body.get("messages") or []):
        return sum(len(str(message.get("content")).split()) for message in messages)
    query = body.get("query") or body.get("text_1") or ""
    texts = cast("list[str]", body.get("documents") or body.get("text_2") or [])
    return sum(len(str(query).split()) + len(text.split()) for text in texts)


def main() -> None:
    """Serve as a program. Every plain field of Behaviour is an option."""
    import argparse

    parser = argparse.ArgumentParser(description="A model server that does as it is told.")
    parser.add_argument("--port", type=int, default=0)
    plain = [f for f in fields(Behaviour) if isinstance(f.default, int | float | str)]
    for option in plain:
        name = f"--{option.name.replace('_', '-')}"
        if isinstance(option.default, bool):
            parser.add_argument(name, action=argparse.BooleanOptionalAction, default=option.default)
        else:
            kind: type = type(cast("int | float | str", option.default))
            parser.add_argument(name, type=kind, default=option.default)
    given = vars(parser.parse_args())
    server = FakeServer(Behaviour(**{f.name: given[f.name] for f in plain}), port=given["port"])

    async def serve() -> None:
        task = asyncio.create_task(server.serve())
        while server.port == 0:
            await asyncio.sleep(0.01)
        print(f"listening on {server.url}", flush=True)  # noqa: T201 - the answer of this program
        await task

    try:
        asyncio.run(serve())
    except KeyboardInterrupt:
        return


if __name__ == "__main__":
    main()

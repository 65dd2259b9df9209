"""A server of completions, chat and vectors that is right, in small methods that a fault replaces one of.

Unlike the fake server its answers are pieces of a text of its own for each prompt, with log-probabilities,
its metrics page is vLLM's, and it keeps what its interface promises.
"""

import hashlib
import json
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

WORDS = (
    "tide", "wind", "sail", "rope", "mast", "keel", "gull", "salt", "rock", "foam", "wave", "moon", "star", "lamp",
    "fish", "net", "oar", "bay", "reef", "cliff", "sand", "shell", "storm", "cloud", "anchor", "deck", "chart",
)  # fmt: skip


@dataclass
class Turn:
    """One request: its number from 1 on, and what it asks."""

    number: int
    path: str
    body: dict[str, Any]
    others: list["Turn"] = field(default_factory=list["Turn"])
    """Those under way when it came."""

    @property
    def prompt(self) -> str:
        if "messages" in self.body:
            return str(self.body["messages"][-1]["content"])
        return str(self.body.get("prompt", self.body.get("input")))

    @property
    def tokens(self) -> int:
        return int(self.body.get("max_tokens", 16))


class OddServer:
    """Runs while it is entered. What is right here is replaced in the classes that are not."""

    api = "completions"

    def __init__(self) -> None:
        self.turns: list[Turn] = []
        self._running: list[Turn] = []
        self._lock = threading.Lock()
        odd = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_: Any) -> None:
                pass

            def do_GET(self) -> None:
                odd.get(self)

            def do_POST(self) -> None:
                odd.post(self)

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._http.server_address[1]}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._http.shutdown()
        self._http.server_close()

    # What a fault replaces.

    def pieces(self, turn: Turn) -> list[str]:
        """The tokens of an answer: the same for the same prompt."""
        return self.words(turn.prompt, turn.tokens)

    def words(self, prompt: str, count: int) -> list[str]:
        made = hashlib.sha256(prompt.encode()).digest() * (1 + count // 32)
        return [f" {WORDS[byte % len(WORDS)]}" for byte in made[:count]]

    def status(self, turn: Turn) -> int:
        return 200

    def pause(self, turn: Turn, at: int) -> float:
        """Seconds before piece `at`."""
        return 0.002 if at == 0 else 0.0003

    def usage(self, turn: Turn, pieces: list[str]) -> dict[str, int]:
        prompt = len(turn.prompt.split())
        return {
            "prompt_tokens": prompt,
            "completion_tokens": len(pieces),
            "total_tokens": prompt + len(pieces),
        }

    def gap(self, turn: Turn, at: int) -> float | None:
        """Nats between the two likeliest tokens; None for a server that tells no log-probabilities."""
        return 5.0

    def events(self, turn: Turn, pieces: list[str]) -> Iterator[str | None]:
        """The lines of a stream; None cuts it off."""
        for at, piece in enumerate(pieces):
            time.sleep(self.pause(turn, at))
            yield json.dumps({"choices": [self.choice(turn, at, piece, last=at + 1 == len(pieces))]})
        if (turn.body.get("stream_options") or {}).get("include_usage"):
            yield json.dumps({"choices": [], "usage": self.usage(turn, pieces)})
        yield "[DONE]"

    def choice(self, turn: Turn, at: int, piece: str, *, last: bool) -> dict[str, Any]:
        made: dict[str, Any] = {"index": 0, "text": piece, "finish_reason": "length" if last else None}
        gap = self.gap(turn, at)
        if gap is not None and turn.body.get("logprobs"):
            made["logprobs"] = {
                "tokens": [piece],
                "token_logprobs": [-0.1],
                "top_logprobs": [{piece: -0.1, " other": -0.1 - gap}],
            }
        return made

    def vectors(self, turn: Turn, texts: list[str]) -> list[str]:
        """Each as JSON."""
        return [self.vector(text) for text in texts]

    def vector(self, text: str) -> str:
        made = hashlib.sha256(text.encode()).digest()
        return json.dumps([byte / 255 - 0.5 for byte in made])

    def message(self, turn: Turn) -> tuple[dict[str, Any], str]:
        """A chat's answer, and why it ended."""
        if turn.body.get("tools"):
            call = {
                "id": "c",
                "type": "function",
                "function": {"name": "report", "arguments": '{"ok": true}'},
            }
            return {"role": "assistant", "content": None, "tool_calls": [call]}, "tool_calls"
        content = '{"ok": true}' if turn.body.get("response_format") else "All is well."
        return {"role": "assistant", "content": content}, "stop"

    def chat_events(self, turn: Turn) -> Iterator[str | None]:
        """The same message in parts of two letters."""
        message, why = self.message(turn)
        for name in ("reasoning", "content"):
            for part in _parts(message.get(name)):
                yield _delta({name: part})
        for at, call in enumerate(message.get("tool_calls") or ()):
            yield _delta({"tool_calls": [{"index": at, "function": {"name": call["function"]["name"]}}]})
            for part in _parts(call["function"]["arguments"]):
                yield _delta({"tool_calls": [{"index": at, "function": {"arguments": part}}]})
        yield _delta({}, why)
        yield "[DONE]"

    def metrics(self) -> str:
        return f"vllm:num_requests_running {len(self._running)}\nvllm:kv_cache_usage_perc {self.kv():g}\n"

    def kv(self) -> float:
        return 0.01 * len(self._running)

    # The wire.

    def get(self, to: BaseHTTPRequestHandler) -> None:
        if to.path == "/metrics":
            self._whole(to, 200, self.metrics(), "text/plain")
        elif to.path == "/v1/models":
            self._whole(to, 200, json.dumps({"data": [{"id": "odd"}]}))
        else:
            self._whole(to, 200 if to.path == "/health" else 404, "{}")

    def post(self, to: BaseHTTPRequestHandler) -> None:
        body = json.loads(to.rfile.read(int(to.headers["Content-Length"])))
        with self._lock:
            turn = Turn(len(self.turns) + 1, to.path, body, list(self._running))
            self.turns.append(turn)
            self._running.append(turn)
        try:
            self._answer(to, turn)
        except (BrokenPipeError, ConnectionResetError):
            to.close_connection = True
        finally:
            with self._lock:
                self._running.remove(turn)

    def _answer(self, to: BaseHTTPRequestHandler, turn: Turn) -> None:
        status = self.status(turn)
        if status != 200:
            self._whole(to, status, '{"error": {"message": "told to fail"}}')
        elif turn.path == "/v1/embeddings" and self.api == "embeddings":
            time.sleep(self.pause(turn, 0))
            texts = turn.body["input"] if isinstance(turn.body["input"], list) else [turn.prompt]
            rows = [f'{{"index": {n}, "embedding": {v}}}' for n, v in enumerate(self.vectors(turn, texts))]
            usage = json.dumps(self.usage(turn, []))
            self._whole(to, 200, f'{{"data": [{", ".join(rows)}], "usage": {usage}}}')
        elif self.api != "completions" or turn.path == "/v1/embeddings":
            self._whole(to, 404, "{}")
        elif turn.path == "/v1/chat/completions" and not turn.body.get("stream"):
            message, why = self.message(turn)
            choice = {"index": 0, "message": message, "finish_reason": why}
            self._whole(to, 200, json.dumps({"choices": [choice]}))
        elif turn.path == "/v1/chat/completions":
            self._stream(to, self.chat_events(turn))
        elif turn.body.get("stream"):
            self._stream(to, self.events(turn, self.pieces(turn)))
        else:
            self._whole(to, 400, "{}")

    def _stream(self, to: BaseHTTPRequestHandler, lines: Iterator[str | None]) -> None:
        to.send_response(200)
        to.send_header("Content-Type", "text/event-stream")
        to.send_header("Transfer-Encoding", "chunked")
        to.end_headers()
        for line in lines:
            if line is None:
                to.close_connection = True
                return
            data = f"data: {line}\n\n".encode()
            to.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))
        to.wfile.write(b"0\r\n\r\n")

    def _whole(
        self, to: BaseHTTPRequestHandler, status: int, text: str, kind: str = "application/json"
    ) -> None:
        data = text.encode()
        to.send_response(status)
        to.send_header("Content-Type", kind)
        to.send_header("Content-Length", str(len(data)))
        to.end_headers()
        to.wfile.write(data)


def _parts(text: str | None) -> list[str]:
    return [(text or "")[at : at + 2] for at in range(0, len(text or ""), 2)]


def _delta(delta: dict[str, Any], why: str | None = None) -> str:
    return json.dumps({"choices": [{"index": 0, "delta": delta, "finish_reason": why}]})

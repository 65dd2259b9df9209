"""Asks a server of this machine one thing at a time; what it says becomes nouns of the layer `service`."""

import json
import math
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, cast

from model_optimizer.core import HostError, UsageError
from model_optimizer.system import local_http
from model_optimizer.verify.service_seen import Said, Usage

KEY = "MOPT_API_KEY"
PROMPTS = 16
TOKENS = 24
TIMEOUT_S = 120.0
FIRST, SECOND = ("harbour", "lantern", "meadow", "granite"), ("amber", "violet", "copper", "ivory")


MORE: Mapping[str, Any] = {
    "ignore_eos": True,
    "logprobs": 2,
    "stream_options": {"include_usage": True},
}
"""What makes more visible, and not every server knows."""

FEWER = (
    ("ignore_eos", "logprobs"),
    ("ignore_eos", "stream_options"),
    ("ignore_eos",),
    ("stream_options",),
    (),
)
"""What is tried in its place where it is refused."""


class Asker:
    """Sends prompts to a server of this machine and reads streamed answers."""

    def __init__(self, url: str, model: str | None) -> None:
        self.url = url
        self.key = os.environ.get(KEY, "").strip() or None
        self.model = model or self._first()
        self.more = dict(MORE)
        self.markers = tuple(f"{a}-{b}" for a in FIRST for b in SECOND)
        self.prompts = tuple(
            f"Note {n + 1}. The keeper wrote one word in the log and asked for it again: {marker}"
            for n, marker in enumerate(self.markers)
        )

    def _first(self) -> str:
        reply = local_http.ask(f"{self.url}/v1/models", key=self.key)
        if reply is None:
            raise HostError(f"nobody answers at {self.url}", hint=("is the server running, on this port?",))
        try:
            return str(json.loads(reply.body)["data"][0]["id"])
        except (ValueError, KeyError, IndexError, TypeError):
            raise UsageError(
                f"{self.url} does not say which model it serves",
                cause=(f"status {reply.status} of /v1/models",),
                hint=("name it with --model; a key is read from MOPT_API_KEY",),
            ) from None

    def ask(self, prompt: int) -> Said:
        """One completion, greedy, streamed, with the gap of each token where the server tells it."""
        body = {
            "model": self.model, "prompt": self.prompts[prompt], "max_tokens": TOKENS, "temperature": 0,
            "stream": True, **self.more,
        }  # fmt: skip
        began = time.perf_counter()
        reply = local_http.ask(f"{self.url}/v1/completions", body=body, key=self.key, timeout_s=TIMEOUT_S)
        took = time.perf_counter() - began
        if reply is None:
            return Said(prompt=prompt, seconds=took, error=f"no answer within {TIMEOUT_S:g} s, or cut off")
        if reply.status != 200:
            return Said(prompt=prompt, seconds=took, error=refusal(reply))
        return replace(read(reply.body), prompt=prompt, seconds=took)

    def ask_plainer(self) -> Said:
        """The first prompt, with as much as the server knows of what not every one does; kept for later."""
        said = self.ask(0)
        for names in FEWER:
            if not str(said.error).startswith(("status 400", "status 422")):
                break
            self.more = {name: MORE[name] for name in names}
            said = self.ask(0)
        return said

    def embed(self, prompt: int) -> Said:
        """The vector of one prompt."""
        (said,) = self._embedded((prompt,))
        return said

    def embed_all(self) -> tuple[Said, ...]:
        """The vectors of all prompts, asked for in one request; () where the server takes one at a time."""
        found = self._embedded(tuple(range(len(self.prompts))))
        return () if str(found[0].error).startswith(("status 400", "status 413", "status 422")) else found

    def _embedded(self, prompts: tuple[int, ...]) -> tuple[Said, ...]:
        texts = [self.prompts[prompt] for prompt in prompts]
        body = {"model": self.model, "input": texts if len(texts) > 1 else texts[0]}
        began = time.perf_counter()
        reply = local_http.ask(f"{self.url}/v1/embeddings", body=body, key=self.key, timeout_s=TIMEOUT_S)
        took = time.perf_counter() - began
        error, usage = None, None
        found: dict[int, tuple[float, ...]] = {}
        if reply is None or reply.status != 200:
            error = refusal(reply) if reply else f"no answer within {TIMEOUT_S:g} s, or cut off"
        else:
            try:
                answer = json.loads(reply.body)
                found = {row.get("index", 0): tuple(map(float, row["embedding"])) for row in answer["data"]}
                usage = _usage(answer.get("usage")) if len(texts) == 1 else None
            except (ValueError, KeyError, IndexError, TypeError, AttributeError):
                error = "the answer holds no vector"
        return tuple(
            Said(
                prompt=prompt, seconds=took, usage=usage, vector=found.get(at, ()),
                error=error or _no_vector(found.get(at, ())),
            )
            for at, prompt in enumerate(prompts)
        )  # fmt: skip

    def chat(self, body: Mapping[str, Any], *, stream: bool = False) -> tuple[int, Mapping[str, Any]]:
        """A chat request: status, and the choice's message with `finish_reason`; of a refusal its `error`.

        Of a stream the parts are put together, as a client does.
        """
        full = {
            "model": self.model, "temperature": 0, "stream": stream,
            "messages": [{"role": "user", "content": "Report that all is well."}], **body,
        }  # fmt: skip
        reply = local_http.ask(
            f"{self.url}/v1/chat/completions", body=full, key=self.key, timeout_s=TIMEOUT_S
        )
        if reply is None:
            return 0, {}
        if reply.status != 200:
            return reply.status, {"error": _said(reply)}
        try:
            if stream:
                return 200, joined(_events(reply.body))
            choice = json.loads(reply.body)["choices"][0]
            return 200, {**choice["message"], "finish_reason": choice.get("finish_reason")}
        except (ValueError, KeyError, IndexError, TypeError, AttributeError):
            return reply.status, {}


def refusal(reply: local_http.Reply) -> str:
    """A status, and what the server says of it where it does."""
    said = _said(reply)
    return f"status {reply.status}: {said}" if said else f"status {reply.status}"


def _said(reply: local_http.Reply) -> str:
    try:
        return _first_line(json.loads(reply.body))
    except (ValueError, AttributeError):
        return ""


def _first_line(body: Any) -> str:
    """What a server says of its refusal, one short line of it."""
    error: Any = body.get("error", body)
    said: Any = cast("dict[str, Any]", error).get("message") if isinstance(error, dict) else error
    return str(said or "").strip().partition("\n")[0][:120]


def joined(events: Iterable[Mapping[str, Any] | None]) -> Mapping[str, Any]:
    """The message whose parts these events are. Calls are told apart by their index."""
    message: dict[str, Any] = {}
    calls: dict[int, dict[str, str]] = {}
    for event in events:
        choice: dict[str, Any] = (event.get("choices") or [{}])[0] if event else {}
        delta: dict[str, Any] = choice.get("delta") or {}
        for name in ("content", "reasoning", "reasoning_content"):
            if part := delta.get(name):
                message[name] = message.get(name, "") + part
        parts: list[dict[str, Any]] = delta.get("tool_calls") or []
        for part in parts:
            call = calls.setdefault(part.get("index", 0), {})
            function: dict[str, str | None] = part.get("function") or {}
            for name, text in function.items():
                if text is not None:
                    call[name] = call.get(name, "") + text
        message["finish_reason"] = choice.get("finish_reason") or message.get("finish_reason")
    if calls:
        message["tool_calls"] = [{"function": calls[at]} for at in sorted(calls)]
    return message


def _no_vector(vector: tuple[float, ...]) -> str | None:
    if not vector:
        return "the answer holds no vector"
    return None if all(map(math.isfinite, vector)) else "the vector holds what is no number"


def read(body: bytes) -> Said:
    """What the events of a stream say; its `error` when they say one, or do not come to their end."""
    pieces: list[str] = []
    gaps: list[float] = []
    tokens, ended, usage, error = 0, None, None, "the stream ended before its end"
    for event in _events(body):
        if event is None:
            error = None if error and error.startswith("the stream") else error
            continue
        if "error" in event:
            error = f"an error within the stream: {_first_line(event)}"
        usage = _usage(event.get("usage")) or usage
        for choice in event.get("choices") or ():
            tokens += _told(choice.get("logprobs"))
            ended = choice.get("finish_reason") or ended
            if text := choice.get("text"):
                pieces.append(str(text))
                gaps.append(_gap(choice.get("logprobs")))
    return Said(
        prompt=0, pieces=tuple(pieces), gaps=tuple(gaps), error=error, tokens=tokens or None, asked=TOKENS,
        ended=ended, usage=usage,
    )  # fmt: skip


def _usage(found: Any) -> Usage | None:
    try:
        return Usage(
            prompt=int(found["prompt_tokens"]),
            completion=int(found.get("completion_tokens") or 0),
            total=None if found.get("total_tokens") is None else int(found["total_tokens"]),
        )
    except (KeyError, TypeError, ValueError, AttributeError):
        return None


def _told(logprobs: Any) -> int:
    """Tokens that a piece tells of; pieces without any text have some too."""
    try:
        return len(logprobs["tokens"])
    except (KeyError, TypeError):
        return 0


def _events(body: bytes) -> Iterator[dict[str, Any] | None]:
    """Each event of a stream; None for the mark of its end. What is no JSON is left out."""
    for line in body.decode("utf-8", "replace").splitlines():
        if not line.startswith("data:"):
            continue
        data = line[5:].strip()
        if data == "[DONE]":
            yield None
            continue
        try:
            event = json.loads(data)
        except ValueError:
            continue
        if isinstance(event, dict):
            yield cast("dict[str, Any]", event)


def _gap(logprobs: Any) -> float:
    """The least nats between the two likeliest tokens within a piece; infinite where none are told."""
    try:
        best = [sorted(row.values(), reverse=True) for row in logprobs["top_logprobs"]]
        return min(float(row[0] - row[1]) for row in best)
    except (KeyError, IndexError, TypeError, ValueError, AttributeError):
        return float("inf")

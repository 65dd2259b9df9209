"""Layer `service`: ask a server alone and at once, load it with the bench client, look at its counters."""

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

from model_optimizer.bench.options import BenchOptions
from model_optimizer.bench.run import measure
from model_optimizer.bench.target import Target
from model_optimizer.core import (
    HostError,
    Lengths,
    MoptError,
    Progress,
    Task,
    UsageError,
    Verdict,
    Workload,
)
from model_optimizer.system import local_http, telemetry
from model_optimizer.verify.service import Feature, Resting, Said, Seen, verify_service

from .verify_inside import Inside

KEY = "MOPT_API_KEY"
PROMPTS = 16
TOKENS = 24
TIMEOUT_S = 120.0
IDLE_S = 5.0
FIRST, SECOND = ("harbour", "lantern", "meadow", "granite"), ("amber", "violet", "copper", "ivory")
SCHEMA = {
    "type": "object",
    "properties": {"ok": {"type": "boolean"}},
    "required": ["ok"],
    "additionalProperties": False,
}
WHOLE = ('{"ok":true}', '{"ok":false}')
"""All answers that keep it, but for spaces."""
TOOL = {"type": "function", "function": {"name": "report", "parameters": SCHEMA}}


class Asker:
    """Sends prompts to a server of this machine and reads streamed answers."""

    def __init__(self, url: str, model: str | None) -> None:
        self.url = url
        self.key = os.environ.get(KEY, "").strip() or None
        self.model = model or self._first()
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
            "stream": True, "logprobs": 2, "ignore_eos": True,
        }  # fmt: skip
        began = time.perf_counter()
        reply = local_http.ask(f"{self.url}/v1/completions", body=body, key=self.key, timeout_s=TIMEOUT_S)
        took = time.perf_counter() - began
        if reply is None:
            return Said(prompt=prompt, seconds=took, error=f"no answer within {TIMEOUT_S:g} s, or cut off")
        if reply.status != 200:
            return Said(prompt=prompt, seconds=took, error=f"status {reply.status}")
        pieces, gaps, ended = _read(reply.body)
        error = None if ended else "the stream ended before its end"
        return Said(prompt=prompt, pieces=pieces, gaps=gaps, seconds=took, error=error)

    def embed(self, prompt: int) -> Said:
        """The vector of one prompt."""
        body = {"model": self.model, "input": self.prompts[prompt]}
        began = time.perf_counter()
        reply = local_http.ask(f"{self.url}/v1/embeddings", body=body, key=self.key, timeout_s=TIMEOUT_S)
        took = time.perf_counter() - began
        if reply is None or reply.status != 200:
            error = f"status {reply.status}" if reply else f"no answer within {TIMEOUT_S:g} s, or cut off"
            return Said(prompt=prompt, seconds=took, error=error)
        try:
            vector = tuple(float(number) for number in json.loads(reply.body)["data"][0]["embedding"])
        except (ValueError, KeyError, IndexError, TypeError):
            return Said(prompt=prompt, seconds=took, error="the answer holds no vector")
        return Said(prompt=prompt, seconds=took, vector=vector)

    def chat(self, body: Mapping[str, Any]) -> tuple[int, dict[str, Any]]:
        """A chat request: status, and the choice's message with `finish_reason`."""
        full = {
            "model": self.model, "temperature": 0, "max_tokens": 64,
            "messages": [{"role": "user", "content": "Report that all is well."}], **body,
        }  # fmt: skip
        reply = local_http.ask(
            f"{self.url}/v1/chat/completions", body=full, key=self.key, timeout_s=TIMEOUT_S
        )
        if reply is None or reply.status != 200:
            return (reply.status if reply else 0), {}
        try:
            choice = json.loads(reply.body)["choices"][0]
            return 200, {**choice["message"], "finish_reason": choice.get("finish_reason")}
        except (ValueError, KeyError, IndexError, TypeError):
            return 200, {}


def _read(body: bytes) -> tuple[tuple[str, ...], tuple[float, ...], bool]:
    """Text and gaps of a stream's events, and whether it came to its end."""
    pieces: list[str] = []
    gaps: list[float] = []
    ended = False
    for event in _events(body):
        if event is None:
            ended = True
            continue
        for choice in event.get("choices") or ():
            if text := choice.get("text"):
                pieces.append(str(text))
                gaps.append(_gap(choice.get("logprobs")))
    return tuple(pieces), tuple(gaps), ended


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
    """Nats between the two likeliest tokens; infinite where the server tells nothing."""
    try:
        best = sorted(logprobs["top_logprobs"][0].values(), reverse=True)
        return float(best[0] - best[1])
    except (KeyError, IndexError, TypeError):
        return float("inf")


def verify(url: str, inside: Inside, *, progress: Progress, seed: int = 0) -> Verdict:
    """Layer `service` of a server on this machine. Raises HostError, UsageError when it cannot be asked."""
    asker = Asker(url, inside.model)
    progress("one at a time", 0.0)
    ask, task, alone = _alone(asker)
    glance = telemetry.Glance(telemetry.What(url=url, pid=None, host=False, key_env=KEY))
    try:
        before = _at_rest(glance)
        progress(f"{inside.concurrency} at a time", 0.2)
        with ThreadPoolExecutor(inside.concurrency) as pool:
            order = [(n * 7 + n // PROMPTS) % PROMPTS for n in range(inside.requests)]
            together = tuple(pool.map(ask, order))
        # What may end a server comes last: a model without a grammar for its tokens has done so.
        progress("load", 0.5)
        point = _load(url, asker.model, inside, seed, task)
        promised: tuple[Feature, ...] = ()
        if task == "generate":
            progress("what the interface promises", 0.8)
            promised = features(asker, inside.concurrency)
        after = _at_rest(glance)
    finally:
        glance.close()
    seen = Seen(
        url=url, concurrency=inside.concurrency, markers=asker.markers, alone=alone, together=together,
        point=point, features=promised,
        resting=Resting(
            running=after.get("engine.running"),
            kv_before=before.get("engine.kv_usage"),
            kv_after=after.get("engine.kv_usage"),
        ),
    )  # fmt: skip
    return verify_service(seen, inside.slo)


def _alone(asker: Asker) -> tuple[Callable[[int], Said], Task, tuple[Said, ...]]:
    """How this server is asked, and its answers one at a time: completions, else vectors."""
    texts = tuple(asker.ask(n) for n in range(PROMPTS))
    if not all(said.error for said in texts):
        return asker.ask, "generate", texts
    vectors = tuple(asker.embed(n) for n in range(PROMPTS))
    if not all(said.error for said in vectors):
        return asker.embed, "embed", vectors
    raise MoptError(
        f"{asker.url} answers no completion and no embedding",
        cause=(f"/v1/completions: {texts[0].error}", f"/v1/embeddings: {vectors[0].error}"),
        hint=("this layer asks models that generate or embed",),
    )


def _at_rest(glance: telemetry.Glance) -> dict[str, float]:
    """The engine's counters when it says that nothing runs, or after a while."""
    until = time.monotonic() + IDLE_S
    values, _ = glance()
    while values.get("engine.running", 0.0) > 0 and time.monotonic() < until:
        time.sleep(0.1)
        values, _ = glance()
    return values


def _load(url: str, model: str, inside: Inside, seed: int, task: Task) -> Any:
    work = Workload(
        concurrency=inside.concurrency, requests=inside.requests, prompt_tokens=Lengths.fixed(32),
        output_tokens=Lengths.fixed(TOKENS), task=task,
    )  # fmt: skip
    target = Target(url=url, model=model, api_key_env=KEY if os.environ.get(KEY, "").strip() else None)
    try:
        found = measure(
            target, work, inside.slo, progress=lambda _t, _s: None, seed=seed,
            options=BenchOptions(timeout_s=TIMEOUT_S),
        )  # fmt: skip
    except UsageError:
        raise
    except MoptError:
        # It answered before: that it is gone or completes nothing now shows in the requests that failed.
        return None
    return found.points[-1]


def features(asker: Asker, count: int) -> tuple[Feature, ...]:
    """Each asked for `count` times at once; one that the server refuses is not offered."""
    schema = {"response_format": {"type": "json_schema", "json_schema": {"name": "r", "schema": SCHEMA}}}
    tool = {"tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "report"}}}
    return (
        _feature(asker, "JSON schema", schema, count, _kept),
        _feature(asker, "tool calls", tool, count, _called),
        _feature(asker, "reasoning", {}, count, _split),
    )


def _feature(asker: Asker, name: str, body: Mapping[str, Any], count: int, check: Any) -> Feature:
    status, message = asker.chat(body)
    if not status and local_http.ask(f"{asker.url}/health", key=asker.key) is None:
        return Feature(name=name, asked=1, wrong=("the server ended when it was asked for this",))
    if status != 200 or not message:
        return Feature(name=name, asked=0, missing=f"status {status or 'none'}")
    thinks = message.get("reasoning") or message.get("reasoning_content")
    if name == "reasoning" and not thinks and "</think>" not in str(message.get("content")):
        return Feature(name=name, asked=0, missing="the model thinks in no separate part")
    with ThreadPoolExecutor(count) as pool:
        answers = list(pool.map(asker.chat, [body] * count))
    wrong = [check(m) if s == 200 else f"status {s}" for s, m in answers]
    # An answer that was cut at the limit of tokens shows nothing, unless its beginning can be judged.
    kept = [
        w
        for w, (_, m) in zip(wrong, answers, strict=True)
        if not _is_cut(m) or (check is _kept and m.get("content"))
    ]
    if not kept:
        return Feature(name=name, asked=0, missing="every answer was cut at the limit of tokens")
    return Feature(name=name, asked=len(kept), wrong=tuple(w for w in kept if w))


def _is_cut(message: Mapping[str, Any]) -> bool:
    return message.get("finish_reason") == "length"


def _kept(message: Mapping[str, Any]) -> str | None:
    """A small model may fill a schema with spaces until it is cut: then what is there must be a beginning."""
    if not _is_cut(message):
        return _json(message.get("content"))
    begun = "".join(str(message.get("content")).split())
    good = any(whole.startswith(begun) for whole in WHOLE)
    return None if good else "what there is of the answer does not keep the schema"


def _json(content: Any) -> str | None:
    try:
        found = json.loads(str(content))
    except ValueError:
        return "the answer is no JSON"
    good = isinstance(found, dict) and set(cast("dict[str, Any]", found)) == {"ok"}
    return None if good and isinstance(found["ok"], bool) else "the answer does not keep the schema"


def _called(message: Mapping[str, Any]) -> str | None:
    try:
        call = message["tool_calls"][0]["function"]
    except (KeyError, IndexError, TypeError):
        return "no tool was called"
    return _json(call.get("arguments")) if call.get("name") == "report" else "another tool was called"


def _split(message: Mapping[str, Any]) -> str | None:
    return "thoughts are left in the answer" if "think>" in str(message.get("content")) else None

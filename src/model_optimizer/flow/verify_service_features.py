"""What the interface promises beside texts: JSON by a schema, tool calls, thoughts apart from the answer.

Each is asked for in whole answers and in streams, since a server has another parser for each.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, cast

from model_optimizer.system import local_http
from model_optimizer.verify.service_seen import Feature

from .verify_service_ask import Asker

SHORT, LONG = 64, 1024
"""Tokens of an answer, and of one that begins with thoughts: these may be long."""

SCHEMA = {
    "type": "object",
    "properties": {"ok": {"type": "boolean"}},
    "required": ["ok"],
    "additionalProperties": False,
}
WHOLE = ('{"ok":true}', '{"ok":false}')
"""All answers that keep it, but for spaces."""
TOOL = {"type": "function", "function": {"name": "report", "parameters": SCHEMA}}
MAYBE_LATER = frozenset({408, 429, 500, 502, 503, 504})
"""Of a server that is busy or ill, not of one that does not offer a thing: it is asked once more."""

LEFT = "thoughts are left in the answer"
NO_PARSER = f"{LEFT}, all of them: the server splits none off (vLLM: --reasoning-parser)"

Message = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Promise:
    """What is asked for and what an answer must be. `begins`: whether one that was cut can be judged too."""

    name: str
    body: Mapping[str, Any]
    check: Callable[[Message], str | None]
    begins: Callable[[Message], bool] = lambda _: False


def features(asker: Asker, count: int) -> tuple[Feature, ...]:
    """Each asked for `count` times at once; one that the server refuses is not offered."""
    return tuple(_feature(asker, promise, count) for promise in PROMISES)


def _feature(asker: Asker, promise: Promise, count: int) -> Feature:
    name, body = promise.name, {"max_tokens": SHORT, **promise.body}
    status, message = _first(asker, body)
    if not status and local_http.ask(f"{asker.url}/health", key=asker.key) is None:
        return Feature(name=name, asked=1, wrong=("the server ended when it was asked for this",))
    if status == 200 and _is_cut(message) and _thinks(message):
        body = {**body, "max_tokens": LONG}
        status, message = _first(asker, body)
    if status != 200 or not message:
        said = str(message.get("error") or "")
        return Feature(name=name, asked=0, missing=f"status {status or 'none'}{said and f': {said}'}")
    if why := _not_there(promise, message):
        return Feature(name=name, asked=0, missing=why)
    with ThreadPoolExecutor(count) as pool:
        asked = [pool.submit(asker.chat, body, stream=n % 2 == 1) for n in range(count)]
        answers = [one.result() for one in asked]
    return _judged(promise, answers)


def _judged(promise: Promise, answers: Sequence[tuple[int, Message]]) -> Feature:
    """An answer that was cut at the limit of tokens shows nothing, unless its beginning can be judged."""
    kept = [
        (promise.check(m) if s == 200 else f"status {s or 'none'}", n % 2 == 1)
        for n, (s, m) in enumerate(answers)
        if s != 200 or not _is_cut(m) or promise.begins(m)
    ]
    if not kept:
        return Feature(name=promise.name, asked=0, missing="every answer was cut at the limit of tokens")
    if all(why == LEFT for why, _ in kept) and not any(_thoughts(m) for _, m in answers):
        return Feature(name=promise.name, asked=len(kept), wrong=(NO_PARSER,) * len(kept))
    wrong = tuple(f"{why}, in a stream" if streamed else why for why, streamed in kept if why)
    return Feature(name=promise.name, asked=len(kept), wrong=wrong)


def _first(asker: Asker, body: Mapping[str, Any]) -> tuple[int, Message]:
    status, message = asker.chat(body)
    return asker.chat(body) if status in MAYBE_LATER else (status, message)


def _not_there(promise: Promise, message: Message) -> str | None:
    """Why a model that answers does not show this at all."""
    if promise.check is _split and not _thinks(message):
        return "the model thinks in no separate part"
    if promise.check is _chosen and not message.get("tool_calls") and "tool_call" not in _text(message):
        return "the model chose to call no tool"
    return None


def _is_cut(message: Message) -> bool:
    return message.get("finish_reason") == "length"


def _text(message: Message) -> str:
    return str(message.get("content") or "")


def _thoughts(message: Message) -> str:
    """What stands in the part for thoughts; both names are in use."""
    return str(message.get("reasoning") or message.get("reasoning_content") or "")


def _thinks(message: Message) -> bool:
    return bool(_thoughts(message)) or "<think>" in _text(message) or "</think>" in _text(message)


def _kept(message: Message) -> str | None:
    """A small model may fill a schema with spaces until it is cut: then what is there must be a beginning."""
    if not _is_cut(message):
        return _json(message.get("content"))
    begun = "".join(_text(message).split())
    good = any(whole.startswith(begun) for whole in WHOLE)
    return None if good else "what there is of the answer does not keep the schema"


def _json(content: Any, what: str = "the answer") -> str | None:
    try:
        found = json.loads(str(content))
    except ValueError:
        return f"{what} is no JSON"
    good = isinstance(found, dict) and set(cast("dict[str, Any]", found)) == {"ok"}
    return None if good and isinstance(found["ok"], bool) else f"{what} does not keep the schema"


def _called(message: Message) -> str | None:
    try:
        call = message["tool_calls"][0]["function"]
        name, arguments = call["name"], call.get("arguments")
    except (KeyError, IndexError, TypeError):
        return "no tool was called"
    if name != "report":
        return "another tool was called"
    return _json(arguments, "what the call holds")


def _chosen(message: Message) -> str | None:
    """A call that the model chose to make: its text is not the answer's."""
    if not message.get("tool_calls"):
        left = "tool_call" in _text(message)
        return "the call is left in the answer" if left else "the model chose otherwise under load"
    if "tool_call>" in _text(message):
        return "the call is made, and left in the answer too"
    return _called(message)


def _split(message: Message) -> str | None:
    if "think>" in _text(message):
        return LEFT
    if "think>" in _thoughts(message):
        return "the marks of thoughts are left among them"
    return None if _thoughts(message) else "the thoughts are missing in some answers"


PROMISES = (
    Promise(
        name="JSON schema",
        body={"response_format": {"type": "json_schema", "json_schema": {"name": "r", "schema": SCHEMA}}},
        check=_kept,
        begins=lambda message: bool(_text(message).strip()),
    ),
    Promise(
        name="tool calls",
        body={"tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "report"}}},
        check=_called,
    ),
    Promise(name="chosen tool calls", body={"tools": [TOOL], "tool_choice": "auto"}, check=_chosen),
    Promise(name="reasoning", body={}, check=_split, begins=lambda message: "think>" in _text(message)),
)

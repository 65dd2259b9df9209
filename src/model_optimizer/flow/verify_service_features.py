"""What the interface promises beside texts: JSON by a schema, tool calls, thoughts apart from the answer."""

import json
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

from model_optimizer.system import local_http
from model_optimizer.verify.service_seen import Feature

from .verify_service_ask import Asker

SCHEMA = {
    "type": "object",
    "properties": {"ok": {"type": "boolean"}},
    "required": ["ok"],
    "additionalProperties": False,
}
WHOLE = ('{"ok":true}', '{"ok":false}')
"""All answers that keep it, but for spaces."""
TOOL = {"type": "function", "function": {"name": "report", "parameters": SCHEMA}}


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
    if name == "reasoning" and not thinks and "</think>" not in _text(message):
        return Feature(name=name, asked=0, missing="the model thinks in no separate part")
    with ThreadPoolExecutor(count) as pool:
        answers = list(pool.map(asker.chat, [body] * count))
    wrong = [check(m) if s == 200 else f"status {s}" for s, m in answers]
    # An answer that was cut at the limit of tokens shows nothing, unless its beginning can be judged.
    kept = [
        w
        for w, (_, m) in zip(wrong, answers, strict=True)
        if not _is_cut(m) or (check is _kept and _text(m).strip())
    ]
    if not kept:
        return Feature(name=name, asked=0, missing="every answer was cut at the limit of tokens")
    return Feature(name=name, asked=len(kept), wrong=tuple(w for w in kept if w))


def _is_cut(message: Mapping[str, Any]) -> bool:
    return message.get("finish_reason") == "length"


def _text(message: Mapping[str, Any]) -> str:
    return str(message.get("content") or "")


def _kept(message: Mapping[str, Any]) -> str | None:
    """A small model may fill a schema with spaces until it is cut: then what is there must be a beginning."""
    if not _is_cut(message):
        return _json(message.get("content"))
    begun = "".join(_text(message).split())
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
    return "thoughts are left in the answer" if "think>" in _text(message) else None

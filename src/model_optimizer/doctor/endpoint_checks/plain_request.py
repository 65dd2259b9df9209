"""One small request is answered.

Four tokens are asked for. A first request may take long while the engine compiles.
"""

import json
from typing import Any

from model_optimizer.core import Finding
from model_optimizer.core.endpoint import Endpoint, Reply

LAYER = "answers"
AFTER = ("served_model",)
SOURCE = ("OpenAI API reference, chat and completions",)
_PATHS = {"chat": "/v1/chat/completions", "completion": "/v1/completions", "embedding": "/v1/embeddings"}


def check(endpoint: Endpoint) -> Finding:
    asked = [name for name in _PATHS if name in endpoint.replies]
    if not asked:
        return Finding(status="unknown", message="no request could be sent")
    good = next((name for name in asked if endpoint.reply(name).status == 200), None)
    if good is None:
        return _refused(endpoint.reply(asked[-1]), _PATHS[asked[-1]])
    reply = endpoint.reply(good)
    if good != "embedding" and _text(reply) is None:
        return Finding(
            status="fail",
            message="the answer is not of the form that clients expect",
            evidence=f"POST {_PATHS[good]}: {reply.kind}",
            hint="something between here and the server changes answers: ask the server itself",
        )
    took = f" in {reply.took_ms / 1000:.1f} s" if reply.took_ms is not None else ""
    what = "a vector" if good == "embedding" else "four tokens"
    return Finding(status="ok", message=f"{what}{took}", evidence=f"POST {_PATHS[good]}: HTTP 200")


def _refused(reply: Reply, path: str) -> Finding:
    if reply.failure == "silent":
        return Finding(
            status="warn",
            message="four tokens took longer than we waited",
            evidence=f"POST {path}: {reply.detail}",
            hint="a first request may wait for kernels to compile: ask again\n"
            "when it stays so, the server is overloaded or hangs: mopt diagnose --pid PID",
        )
    said = _said(reply)
    return Finding(
        status="fail",
        message=f"a small request fails with HTTP {reply.status}"
        if reply.status
        else "a small request breaks off",
        evidence=f"POST {path}: {said or reply.detail or reply.kind}",
        hint="mopt diagnose LOG names the cause in the server's log",
    )


def _text(reply: Reply) -> str | None:
    try:
        choice = json.loads(reply.text)["choices"][0]
        return str(choice["message"]["content"] if "message" in choice else choice["text"])
    except (ValueError, LookupError, TypeError):
        return None


def _said(reply: Reply) -> str:
    """The server's own words for why, in short."""
    try:
        found: Any = json.loads(reply.text)
        inner: Any = found.get("error", found)
        text: Any = inner if isinstance(inner, str) else inner.get("message", inner)
    except (ValueError, AttributeError):
        return ""
    return " ".join(str(text).split())[:200]

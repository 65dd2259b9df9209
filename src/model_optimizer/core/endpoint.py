"""What a running model server looked like from where it was asked."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Failure = Literal["refused", "silent", "no name", "unreachable", "closed", "certificate", "no tls", "no http"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What one request got. `text` is cut, and `failure` is set when there was no answer at all.

    `kind` is the content type. For a stream, `events` counts its data lines and `ended` tells whether the
    last one said [DONE].
    """

    status: int | None = None
    kind: str = ""
    text: str = ""
    server: str = ""
    location: str = ""
    origin: str = ""
    failure: Failure | None = None
    detail: str = ""
    took_ms: float | None = None
    events: int = 0
    ended: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """`url` is scheme and address, `prefix` what was written behind it without /v1 and what follows.

    `replies` are by what was asked: models (GET /v1/models), root_models (the same without the prefix),
    keyless_models (the same without the key), root (GET /), version, preflight (OPTIONS with a foreign
    Origin), chat, completion, embedding and stream. What was not asked is not there. `local` tells whether
    the address is this machine's, `everywhere` whether the port listens on all its interfaces, `published`
    which container publishes it. `wanted` is the model that the user named. `neighbours` are ports of
    model servers that listen on this machine.
    """

    url: str
    prefix: str = ""
    local: bool | None = None
    everywhere: bool | None = None
    published: str | None = None
    wanted: str | None = None
    key_from: str | None = None
    engine: str | None = None
    version: str | None = None
    models: tuple[str, ...] | None = None
    neighbours: tuple[tuple[str, int], ...] = ()
    replies: Mapping[str, Reply] = field(default_factory=dict[str, Reply])

    def reply(self, name: str) -> Reply:
        """An empty one where nothing was asked."""
        return self.replies.get(name, Reply())

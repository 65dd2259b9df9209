"""A running server as something that can be verified."""

from dataclasses import dataclass
from typing import ClassVar
from urllib.parse import urlsplit

from model_optimizer.core import UsageError

LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})
HINT = ("write for example http://127.0.0.1:8000",)


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """A model that answers over HTTP on this machine.

    `url` has no path; `served_name` None means the server's first model. `scheme` is what it was told to
    compute in, which no interface of it tells.
    """

    format: ClassVar[str] = "endpoint"

    url: str
    scheme: str
    task: str
    served_name: str | None = None


def is_url(name: str) -> bool:
    return name.lower().startswith(("http://", "https://"))


def read(url: str, *, task: str, scheme: str) -> Endpoint:
    """The server that somebody names on the command line. UsageError when it is not one of this machine.

    Texts and key go unencrypted to whoever listens there, so that it must be this machine.
    """
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise UsageError(f"`{url}` is not a URL", cause=(str(error),), hint=HINT) from None
    if parts.username is not None or parts.password is not None:
        raise UsageError(
            "the URL holds a user name or a password",
            hint=("put the server's key into the environment variable MOPT_API_KEY",),
        )
    if parts.scheme != "http" or parts.hostname not in LOOPBACK:
        raise UsageError(
            f"`{url}` is not a server on this machine",
            hint=(*HINT, "for another machine run this command there, or forward its port"),
        )
    if parts.path.rstrip("/") not in ("", "/v1") or parts.query or parts.fragment:
        raise UsageError(f"`{url}` has a path", hint=HINT)
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return Endpoint(url=f"http://{host}:{port or 80}", scheme=scheme, task=task)

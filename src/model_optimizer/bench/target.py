"""What is measured: a server, the interface it is asked through, and the key it wants."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Literal
from urllib.parse import urlsplit

from model_optimizer.core import UsageError

Api = Literal["completions", "chat", "embeddings", "rerank", "score", "infer"]

PATHS: Mapping[Api, str] = {
    "completions": "/v1/completions",
    "chat": "/v1/chat/completions",
    "embeddings": "/v1/embeddings",
    "rerank": "/v1/rerank",
    "score": "/v1/score",
    "infer": "/v2/models/{model}/infer",
}
GENERATES: frozenset[Api] = frozenset({"completions", "chat"})
KEY_NAMES = ("MOPT_API_KEY", "OPENAI_API_KEY")


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A server that speaks the OpenAI interface, or for tensors the Open Inference Protocol.

    `model` None asks the server for its first one. `api` None tries what fits the task. `path` replaces
    the interface's usual path. `tokenizer` is a tokenizer.json or a folder that holds one, `vocab_size`
    is used where there is none. `api_key_env` names the variable that holds the key; the key itself is
    never kept in a noun.
    """

    url: str
    model: str | None = None
    api: Api | None = None
    path: str | None = None
    stream: bool = True
    tokenizer: str | None = None
    vocab_size: int | None = None
    api_key_env: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Where to connect. `prefix` is a path that all interfaces of the server share, or empty."""

    host: str
    port: int
    tls: bool
    prefix: str

    @property
    def authority(self) -> str:
        """The value of the Host header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == (443 if self.tls else 80) else f"{host}:{self.port}"

    @property
    def origin(self) -> str:
        return f"{'https' if self.tls else 'http'}://{self.authority}{self.prefix}"


def address(url: str) -> Address:
    """Take a URL apart; one that ends in /v1 or in an interface's path is understood. Raises UsageError."""
    hint = ("write for example http://127.0.0.1:8000",)
    try:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        port = parts.port
    except ValueError as error:
        raise UsageError(f"`{url}` is not a URL", cause=(str(error),), hint=hint) from None
    if parts.username or parts.password:
        message = "the URL holds a user name or a password"
        raise UsageError(message, hint=("put the key into an environment variable: --api-key-env NAME",))
    if parts.scheme not in ("http", "https") or not parts.hostname or not url.isprintable() or " " in url:
        raise UsageError(f"`{url}` is not the URL of a server", hint=hint)
    prefix = parts.path.rstrip("/")
    for path in sorted((*PATHS.values(), "/v1"), key=len, reverse=True):
        if prefix.endswith(path):
            prefix = prefix.removesuffix(path)
            break
    tls = parts.scheme == "https"
    return Address(host=parts.hostname, port=port or (443 if tls else 80), tls=tls, prefix=prefix)


def api_of(url: str) -> Api | None:
    """The interface that the end of a URL names, if it does."""
    path = urlsplit(url).path.rstrip("/")
    return next((api for api, end in PATHS.items() if path.endswith(end)), None)


def is_here(url: str) -> bool:
    """Whether the server is on this machine: a key that was not named for it goes nowhere else."""
    host = address(url).host
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def api_key(target: Target, environment: Mapping[str, str] = os.environ) -> str | None:
    """The key from the environment, None without one.

    The variable that `target` names, else for a server on this machine the first of KEY_NAMES that is set.
    Raises UsageError when the named variable is empty.
    """
    if target.api_key_env is not None:
        key = environment.get(target.api_key_env, "").strip()
        if not key:
            raise UsageError(f"the environment variable `{target.api_key_env}` is not set")
    else:
        names = KEY_NAMES if is_here(target.url) else ()
        key = next((k for name in names if (k := environment.get(name, "").strip())), "")
    if key and not (key.isascii() and key.isprintable()):
        raise UsageError("the API key holds characters that a header cannot carry")
    return key or None

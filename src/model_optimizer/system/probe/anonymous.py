"""Takes out of a host what names its owner: host and user names, serial numbers, UUIDs, addresses."""

import getpass
import platform
import re
from contextlib import suppress
from typing import Any

import msgspec

from model_optimizer.core import Host
from model_optimizer.system import files

_PATTERNS = (
    (re.compile(r"\b(?:GPU|MIG)-[0-9a-f]{8}-[0-9a-f-]{20,}", re.IGNORECASE), "<uuid>"),
    (re.compile(r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", re.IGNORECASE), "<uuid>"),
    (re.compile(r"\b(?:[0-9a-f]{2}:){5}[0-9a-f]{2}\b", re.IGNORECASE), "<address>"),
    (re.compile(r"(serial(?: number)?\W{1,3})[\w-]+", re.IGNORECASE), r"\1<serial>"),
    (re.compile(r"\b[\w.+-]+@[\w-]+\.[\w.]+"), "<address>"),
    (re.compile(r"(://)[^/\s@]*@"), r"\1"),
    (re.compile(r"(/(?:home|Users|scratch|data)/)[^/\s:]+"), r"\1<user>"),
    (re.compile(r"\b[0-9a-f]{1,4}(?::[0-9a-f]{0,4}){4,7}\b", re.IGNORECASE), "<address>"),
)
_ADDRESS = re.compile(r"\b(?:\d{1,3}\.){3}\d{1,3}\b")
# Where people and kernels write freely; elsewhere four numbers with dots are the version of a package.
_FREE = frozenset({"messages", "variables", "unread"})


def anonymous(host: Host, *, names: tuple[str, ...] | None = None) -> Host:
    """The same host without them. `names` are words to take out; those of this machine and user if None."""
    words = _own_names() if names is None else names
    raw = msgspec.to_builtins(host, str_keys=True)
    return msgspec.convert(_clean(raw, words, free=False), type=Host)


def _own_names() -> tuple[str, ...]:
    found = [platform.node(), platform.node().partition(".")[0], files.expanded("~").name]
    with suppress(Exception):
        found.append(getpass.getuser())
    return tuple(dict.fromkeys(name for name in found if len(name) > 2 and name != "root"))


def _clean(value: Any, words: tuple[str, ...], *, free: bool) -> Any:
    if isinstance(value, dict):
        return {
            _text(k, words, free=free): _clean(v, words, free=free or k in _FREE) for k, v in value.items()
        }
    if isinstance(value, list | tuple):
        return [_clean(one, words, free=free) for one in value]
    return _text(value, words, free=free) if isinstance(value, str) else value


def _text(text: str, words: tuple[str, ...], *, free: bool) -> str:
    for pattern, instead in _PATTERNS:
        text = pattern.sub(instead, text)
    if free:
        text = _ADDRESS.sub("<address>", text)
        for word in words:
            text = re.sub(rf"(?<![\w-]){re.escape(word)}(?![\w-])", "<name>", text)
    return text

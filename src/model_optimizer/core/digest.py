"""Names for content: `sha256:` and 64 hexadecimal digits."""

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import cast

import msgspec

_CHUNK = 1 << 20


def of_noun(noun: object) -> str:
    """Equal nouns have equal digests, on any machine, and so has a noun that was read from its file.

    A whole number in a field of type float counts as the float that it reads back as.
    """
    typed = msgspec.convert(msgspec.to_builtins(noun, str_keys=True), type(noun), str_keys=True)
    plain = _unsigned_zeros(msgspec.to_builtins(typed, str_keys=True))
    content = msgspec.json.encode(plain, order="deterministic")
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def of_path(path: Path) -> str:
    """A file's content, or for a folder the names and contents of all files below it."""
    if path.is_file():
        return f"sha256:{_of_file(path)}"
    total = hashlib.sha256()
    for file in sorted(p for p in path.rglob("*") if p.is_file()):
        total.update(f"{file.relative_to(path).as_posix()}\0{_of_file(file)}\n".encode())
    return f"sha256:{total.hexdigest()}"


def _unsigned_zeros(value: object) -> object:
    """-0.0 equals 0.0, and is written otherwise."""
    if isinstance(value, float):
        return value + 0.0
    if isinstance(value, Mapping):
        return {name: _unsigned_zeros(one) for name, one in cast("Mapping[str, object]", value).items()}
    if isinstance(value, list | tuple):
        return [_unsigned_zeros(one) for one in cast("Sequence[object]", value)]
    return value


def _of_file(path: Path) -> str:
    found = hashlib.sha256()
    with path.open("rb") as stream:
        while chunk := stream.read(_CHUNK):
            found.update(chunk)
    return found.hexdigest()

"""Names for content: `sha256:` and 64 hexadecimal digits."""

import hashlib
from pathlib import Path

import msgspec

_CHUNK = 1 << 20


def of_noun(noun: object) -> str:
    """Equal nouns have equal digests, on any machine."""
    content = msgspec.json.encode(msgspec.to_builtins(noun, str_keys=True), order="deterministic")
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def of_path(path: Path) -> str:
    """A file's content, or for a folder the names and contents of all files below it."""
    if path.is_file():
        return f"sha256:{_of_file(path)}"
    total = hashlib.sha256()
    for file in sorted(p for p in path.rglob("*") if p.is_file()):
        total.update(f"{file.relative_to(path).as_posix()}\0{_of_file(file)}\n".encode())
    return f"sha256:{total.hexdigest()}"


def _of_file(path: Path) -> str:
    found = hashlib.sha256()
    with path.open("rb") as stream:
        while chunk := stream.read(_CHUNK):
            found.update(chunk)
    return found.hexdigest()

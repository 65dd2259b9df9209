"""The only place where nouns become bytes and bytes become nouns."""

from pathlib import Path
from typing import Any, TypeVar, cast

import msgspec

from .errors import UsageError

T = TypeVar("T")


def schema(kind: type) -> str:
    """The schema name of a noun: `plan/1` for Plan."""
    words = "".join(f"_{c.lower()}" if c.isupper() else c for c in kind.__name__)
    return f"{words.lstrip('_')}/1"


def to_builtins(noun: object) -> dict[str, Any]:
    """A noun as plain dictionaries and lists; `"schema": "<noun>/1"` comes first."""
    return {"schema": schema(type(noun)), **msgspec.to_builtins(noun, str_keys=True)}


def dumps(noun: object) -> str:
    """Indented JSON with a final newline."""
    return msgspec.json.format(msgspec.json.encode(to_builtins(noun)), indent=2).decode() + "\n"


def line(noun: object) -> str:
    """JSON on one line with a final newline, for files that hold a noun a line."""
    return msgspec.json.encode(to_builtins(noun)).decode() + "\n"


def loads(text: bytes | str, kind: type[T], *, name: str = "input") -> T:
    """Decode a noun; UsageError names the field when the text does not hold one."""
    try:
        raw: Any = msgspec.json.decode(text)
        found = cast("dict[str, Any]", raw).get("schema") if isinstance(raw, dict) else None
        if isinstance(raw, dict) and found != schema(kind):
            raise UsageError(
                f"`{name}` holds `{found or 'something else'}`, not `{schema(kind)}`",
                hint=("pass the file of the right kind, or make it again with this version",),
            )
        return msgspec.convert(raw, type=kind)
    except msgspec.MsgspecError as error:
        raise UsageError(
            f"`{name}` is not a valid {kind.__name__}",
            cause=(str(error),),
            hint=(f"it must be JSON with the fields of `{schema(kind)}`",),
        ) from error


def load(path: Path, kind: type[T]) -> T:
    """Read a noun from a file. Raises UsageError when it is missing or does not hold one."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise UsageError(
            f"`{path}` cannot be read",
            cause=(error.strerror or str(error),),
            hint=(f"name a file that holds a {kind.__name__} as JSON",),
        ) from error
    return loads(content, kind, name=str(path))

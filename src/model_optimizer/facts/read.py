"""Reads fact files. They are ours, so a broken one is a bug: its error names the file."""

import tomllib
from pathlib import Path
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")

ROOT = Path(__file__).parent


def toml(path: Path, kind: type[T]) -> T:
    """One row from a file of its own."""
    return _convert(_parse(path.read_text("utf-8"), path), kind, path)


def toml_head(path: Path, kind: type[T]) -> T:
    """Only the first paragraph of the file, which is what a lookup by name needs of it."""
    return _convert(_parse(path.read_text("utf-8").partition("\n\n")[0], path), kind, path)


def toml_rows(path: Path, table: str, kind: type[T]) -> tuple[T, ...]:
    """All rows of one `[[table]]` of a file."""
    found = _parse(path.read_text("utf-8"), path).get(table, [])
    return _convert(found, tuple[kind, ...], path)


def json(path: Path, kind: type[T]) -> T:
    """One JSON document."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except msgspec.MsgspecError as error:
        raise ValueError(f"the fact file {path.name} is broken: {error}") from error


def _parse(text: str, path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"the fact file {path.name} is broken: {error}") from error


def _convert(raw: object, kind: type[T], path: Path) -> T:
    try:
        return msgspec.convert(raw, type=kind)
    except msgspec.ValidationError as error:
        raise ValueError(f"the fact file {path.name} is broken: {error}") from error

"""Results of other tools as measurements of ours. One tool a file; its name is the file's.

Each has TITLE, `recognises(document) -> bool` and `read(document, name) -> Measurement`. What a tool does not
say stays None; where its definition differs from ours, the value is converted if the file allows it, and the
measurement's `definitions` say what it is if not.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol, cast

import msgspec

from model_optimizer.core import Measurement, UsageError, codec, plugins

_LARGEST = 1 << 30
Document = Mapping[str, object]


class Importer(Protocol):
    """A file in this folder."""

    TITLE: str

    def recognises(self, document: Document) -> bool: ...

    def read(self, document: Document, name: str) -> Measurement: ...


def read(path: Path, *, tool: str | None = None) -> Measurement:
    """A measurement from a file of ours or of a tool that is known. `tool` says which, else it is found out.

    UsageError says what the file is not.
    """
    documents = _documents(path)
    if tool is None and documents[0].get("schema") == codec.schema(Measurement):
        return codec.load(path, Measurement)
    importer = cast("Importer", plugins.load(__name__, tool)) if tool else _importer(documents[0], path)
    if not all(importer.recognises(document) for document in documents):
        raise UsageError(f"`{path}` is no result of {importer.TITLE}", hint=(_hint(),))
    try:
        found = [importer.read(document, str(path)) for document in documents]
    except msgspec.ValidationError as error:
        raise UsageError(
            f"`{path}` is no whole result of {importer.TITLE}", cause=(str(error),), hint=(_hint(),)
        ) from error
    return joined(found)


def joined(found: Sequence[Measurement]) -> Measurement:
    """Several results of one file (`--append-result`) as one measurement with their points in order."""
    return replace(found[0], points=tuple(point for one in found for point in one.points))


def _importer(document: Document, path: Path) -> Importer:
    for name in plugins.names(__name__):
        importer = cast("Importer", plugins.load(__name__, name))
        if importer.recognises(document):
            return importer
    said = document.get("schema")
    what = f"it says that it is `{said}`" if isinstance(said, str) else "no tool that is known wrote it"
    raise UsageError(f"`{path}` holds no measurement", cause=(what,), hint=(_hint(),))


def _hint() -> str:
    titles = [plugins.load(__name__, name).TITLE for name in plugins.names(__name__)]
    return f"known are files of `mopt bench --out`, and of {', '.join(titles)}"


def _documents(path: Path) -> list[Document]:
    """The JSON object of a file, or one for each line. UsageError when it is something else."""
    try:
        if path.stat().st_size > _LARGEST:
            raise UsageError(f"`{path}` is larger than a result can be")
        content = path.read_bytes()
    except OSError as error:
        raise UsageError(
            f"`{path}` cannot be read", cause=(error.strerror or str(error),), hint=(_hint(),)
        ) from error
    try:
        found: object = msgspec.json.decode(content)
        rows = [found]
    except msgspec.DecodeError as error:
        lines = [line for line in content.splitlines() if line.strip()]
        try:
            rows = [msgspec.json.decode(line) for line in lines] if len(lines) > 1 else []
        except (msgspec.DecodeError, UnicodeDecodeError):
            rows = []
        if not rows:
            raise UsageError(f"`{path}` is no JSON", cause=(str(error),), hint=(_hint(),)) from error
    except (UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"`{path}` is no JSON", cause=(str(error),), hint=(_hint(),)) from error
    if not rows or not all(isinstance(row, dict) for row in rows):
        raise UsageError(f"`{path}` holds no JSON object", hint=(_hint(),))
    return [cast("Document", row) for row in rows]

"""How long starts took: one small file for each engine, version, model and GPU, in the user's data folder."""

from dataclasses import dataclass
from pathlib import Path

from model_optimizer.core import MoptError, codec, digest
from model_optimizer.system import files

from .phases import Start

KEPT = 8
"""The last starts say more than all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """Starts that are alike. `model` is the digest of its content."""

    engine: str
    version: str
    model: str
    gpu: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Starts:
    kind: Kind
    starts: tuple[Start, ...] = ()


def folder() -> Path:
    return files.data_home() / "starts"


def read(kind: Kind, place: Path | None = None) -> tuple[Start, ...]:
    """The last ones, the oldest first; () when there was none, or when their file cannot be read."""
    try:
        found = codec.load(_path(kind, place), Starts)
    except MoptError:
        return ()
    return found.starts if found.kind == kind else ()


def add(kind: Kind, start: Start, place: Path | None = None) -> None:
    """Keep one more. Raises HostError."""
    kept = Starts(kind=kind, starts=(*read(kind, place), start)[-KEPT:])
    files.write_atomic(_path(kind, place), codec.dumps(kept))


def _path(kind: Kind, place: Path | None) -> Path:
    name = digest.of_noun(kind).removeprefix("sha256:")[:16]
    return (place or folder()) / f"{kind.engine}-{name}.json"

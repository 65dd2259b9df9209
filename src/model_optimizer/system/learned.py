"""What was read from installed engines: one JSON file an engine and release, in the user's data folder."""

import re
from pathlib import Path

from model_optimizer.core import UsageError
from model_optimizer.facts.flags import Table

from . import files

_NAME = re.compile(r"[a-z0-9_]{1,40}-\d[\w.+]{0,40}")


def folder() -> Path:
    return files.data_home() / "learned"


def write(table: Table) -> Path:
    """Keep a table; one of the same engine and release is replaced. UsageError for an odd name."""
    from model_optimizer.core import codec

    name = f"{table.engine}-{table.version}"
    if not _NAME.fullmatch(name):
        raise UsageError(f"`{name}` is not a name and a release")
    path = folder() / f"{name}.json"
    files.write_atomic(path, codec.dumps(table))
    return path


def tables() -> tuple[Table, ...]:
    """Every table that was learned, in the order of names. UsageError names a file that is not one."""
    place = folder()
    if not place.is_dir():
        return ()
    from model_optimizer.core import codec

    return tuple(
        codec.load(path, Table) for path in sorted(place.glob("*.json")) if _NAME.fullmatch(path.stem)
    )

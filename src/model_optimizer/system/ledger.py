"""The user's own measurements: one JSON object a line in `ledger.jsonl` of the data folder."""

from pathlib import Path
from typing import TYPE_CHECKING

from model_optimizer.core import UsageError

from . import files

if TYPE_CHECKING:
    from model_optimizer.core.ledger import LedgerRow


def path() -> Path:
    return files.data_home() / "ledger.jsonl"


def read(file: Path | None = None) -> "tuple[LedgerRow, ...]":
    """All rows, () when there is no ledger. UsageError names the line that is not a row."""
    place = file or path()
    if not place.is_file():
        return ()
    from model_optimizer.core import codec
    from model_optimizer.core.ledger import LedgerRow

    with files.explained(place):
        lines = place.read_text("utf-8").splitlines()
    return tuple(
        codec.loads(line, LedgerRow, name=f"{place}:{number}")
        for number, line in enumerate(lines, 1)
        if line.strip()
    )


def append(rows: "tuple[LedgerRow, ...]", file: Path | None = None) -> None:
    """Add rows at the end; the file is replaced as a whole, so that it never holds half a line."""
    place = file or path()
    if not rows:
        raise UsageError("there is nothing to add to the ledger")
    from model_optimizer.core import codec

    before = place.read_text("utf-8") if place.is_file() else ""
    added = "".join(codec.line(row) for row in rows)
    files.write_atomic(place, before + added)

"""Measurements that ship with the product, generated from `evidence/` by tools/measured_from_evidence.py."""

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from model_optimizer.core.ledger import LedgerRow

_FOLDER = Path(__file__).parent


@cache
def rows(gpu: str, engine: str) -> "tuple[LedgerRow, ...]":
    """All rows of a GPU and an engine; reads only the files whose names say so."""
    files = sorted(_FOLDER.glob(f"{slug(gpu)}--{engine}-*.jsonl"))
    if not files:
        return ()
    from model_optimizer.core import codec
    from model_optimizer.core.ledger import LedgerRow

    found: list[LedgerRow] = []
    for path in files:
        found += [
            codec.loads(line, LedgerRow, name=path.name) for line in path.read_text("utf-8").splitlines()
        ]
    return tuple(row for row in found if row.gpu == gpu and row.engine == engine)


def slug(gpu: str) -> str:
    """`H200 SXM 141GB` -> `h200-sxm-141gb`: how a file is called."""
    return "-".join(gpu.lower().split())

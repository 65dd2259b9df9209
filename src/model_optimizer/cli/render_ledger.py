"""The user's own measurements as text: what was predicted, what was measured, how far apart they are."""

from collections.abc import Sequence
from statistics import median

from model_optimizer.core.ledger import LedgerRow

from .render import printable, table


def ledger_text(rows: Sequence[LedgerRow]) -> str:
    """Each row, the latest last; then how wrong the predictions were by engine and quantity."""
    if not rows:
        return (
            "nothing was measured on this machine yet: `mopt serve` compares what engines print "
            "with what was predicted\n"
        )
    cells = [["date", "quantity", "model", "engine", "GPU", "measured", "predicted", "error"]]
    cells += [
        [
            row.date[:10],
            row.quantity,
            printable(row.model),
            f"{row.engine} {row.version}",
            printable(row.gpu),
            f"{row.measured:,.6g} {row.unit}",
            "-" if row.predicted is None else f"{row.predicted:,.6g}",
            _percent(error_of(row)),
        ]
        for row in rows
    ]
    return table(cells, right=frozenset({5, 6, 7})) + "\n" + _summary(rows)


def error_of(row: LedgerRow) -> float | None:
    """The share by which the prediction was too high; None where nothing was predicted."""
    if row.predicted is None or not row.measured:
        return None
    return row.predicted / row.measured - 1


def _summary(rows: Sequence[LedgerRow]) -> str:
    kinds = sorted({(row.engine, row.quantity) for row in rows})
    lines: list[str] = []
    for engine, quantity in kinds:
        found = [row for row in rows if (row.engine, row.quantity) == (engine, quantity)]
        errors = [abs(e) for row in found if (e := error_of(row)) is not None]
        if errors:
            worst = _percent(max(errors)).lstrip("+")
            middle = _percent(median(errors)).lstrip("+")
            lines.append(f"{engine}, {quantity}: off by {middle} (median of {len(errors)}), {worst} at most")
    return "".join(f"{line}\n" for line in lines)


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{share:+.1%}".replace("%", " %")

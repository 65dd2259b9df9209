"""The screen of `mopt compare`: the answer, a row for each metric at each load, what a reader should know."""

from model_optimizer.cli.render import printable, table
from model_optimizer.report.compare import CompareResult, MetricChange

_HEAD = ["load", "metric", "A", "B", "change", "interval", "verdict", "runs needed"]


def compare_text(found: CompareResult) -> str:
    """Worst news first."""
    counts = {v: sum(c.verdict == v for c in found.changes) for v in ("worse", "better", "undecided")}
    lines = [f"B is {found.verdict.upper()}" if found.verdict != "undecided" else "UNDECIDED"]
    lines[0] += f": {', '.join(f'{n} {v}' for v, n in counts.items() if n)}" if found.changes else ""
    lines += [f"NOT COMPARABLE, compared by --force: {reason}" for reason in found.not_comparable]
    if found.changes:
        rows = [_HEAD, *(_row(change) for change in found.changes)]
        lines += ["", table(rows, right=frozenset({2, 3, 4, 7})).rstrip()]
    lines += ["", *(f"note: {note}" for note in found.notes)]
    lines.append(
        f"note: intervals hold at 95 % for all metrics together; {found.runs_a} and {found.runs_b} runs"
    )
    return "\n".join(printable(line) for line in lines) + "\n"


def _row(change: MetricChange) -> list[str]:
    cells = [change.load, change.metric, _value(change.a, change.unit), _value(change.b, change.unit)]
    cells.append(f"{change.ratio - 1:+.1%}" if change.ratio is not None else "-")
    if change.interval is not None:
        low, high = change.interval
        cells.append(f"{low - 1:+.1%} to {high - 1:+.1%}")
    else:
        cells.append("-")
    verdict = change.verdict if not change.within_margin else "undecided (within the margin)"
    return [*cells, verdict, str(change.needed_runs) if change.needed_runs else "-"]


def _value(value: float | None, unit: str) -> str:
    if value is None:
        return "-"
    if unit == "share":
        return f"{value:.2%}"
    number = f"{value:.0f}" if value >= 1000 else f"{value:.3g}"
    return f"{number} {unit}" if unit != "1/s" else f"{number}/s"

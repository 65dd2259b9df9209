"""The screens of `mopt optimize`."""

from pathlib import Path

from model_optimizer.core import Record, units
from model_optimizer.planner import Options
from model_optimizer.report.table import cells, client_notes, headings, rows
from model_optimizer.report.words import load_words, machine_words, slo_words

from .render import printable, table


def record_text(record: Record, run: Path) -> str:
    """The table that users know, the decision, and where everything is."""
    lines = [headings(record), *(cells(row) for row in rows(record))]
    notes = [(line[0], line[-1]) for line in lines[1:]]
    body = [list(line[:-1]) for line in lines]
    answer = f"use {record.run.winner}" if record.run.winner else "no winner"
    width = max(len(name) for name, _ in notes)
    parts = [
        f"{record.model.name} on {machine_words(record.host)}",
        f"load: {load_words(record.workload)}",
        f"limits: {slo_words(record.slo)}",
        "",
        table(body, right=frozenset({1, 2, 3, 4})),
        *(f"{name:<{width}}  {note}" for name, note in notes if note != name),
        *(f"note: {note}" for note in client_notes(record)),
        "",
        f"{answer}: {record.run.because}",
        f"report: {run / 'report.html'}",
    ]
    if record.run.winner:
        parts.append(f"serve it: mopt serve {run}")
    return "\n".join(printable(part) for part in parts) + "\n"


def candidates_text(found: Options) -> str:
    """What would be made, with the memory of each by term, and what would not."""
    lines = [["variant", "made by", "memory", "settings"]]
    for plan in (found.reference, *found.plans):
        name = "reference" if plan is found.reference else f"{plan.engine}-{plan.scheme}"
        settings = ", ".join(f"{s.name}={s.value}" for s in plan.settings)
        made = " then ".join(plan.path) or "as it is"
        lines.append([name, made, units.show_bytes(plan.estimate.memory_bytes), settings])
    text = table(lines, right=frozenset({2}))
    if found.rejected:
        text += "\nnot tried:\n" + "".join(f"  {r.engine}, {r.scheme}: {r.reason}\n" for r in found.rejected)
    return text

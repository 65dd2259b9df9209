"""The report as Markdown: what was asked, what was found, what was decided, and how to do it again."""

import shlex

from model_optimizer.core import Candidate, Record, units

from .table import cells, client_notes, headings, rows
from .words import harmless, load_words, machine_words, slo_words


def markdown(record: Record) -> str:
    """A page that reads well as text and renders anywhere."""
    parts = [
        f"# {record.model.name}",
        "",
        _answer(record),
        "",
        f"- Machine: {machine_words(record.host)}",
        f"- Model: {_model(record)}",
        f"- Load: {load_words(record.workload)}",
        f"- Limits: {slo_words(record.slo)}",
        "",
        _table(record),
        "",
        "First token (or request) is the median at the lowest load, throughput the best of the loads.",
        *(f"Note: {note}." for note in client_notes(record)),
        "",
        "## What was compared",
        "",
        *(_verdicts(candidate) for candidate in record.candidates),
        *_rejected(record),
        "## How to run it again",
        "",
        f"    {shlex.join(record.run.command)}",
        "",
        f"Made by mopt {record.run.version}, {record.run.created}.",
    ]
    lines = "\n".join(parts).split("\n")
    return "\n".join(harmless(line) for line in lines) + "\n"


def _answer(record: Record) -> str:
    because = record.run.because or "the run has not finished"
    if record.run.winner is None:
        return f"**No winner**: {because}."
    return f"**Use `{record.run.winner}`**: {because}."


def _model(record: Record) -> str:
    model = record.model
    return (
        f"{model.architecture}, {model.parameters / 1e6:.1f} M parameters, {model.layers} layers, "
        f"{model.attention.upper()}, {model.dtype or 'unknown dtype'}"
    )


def _table(record: Record) -> str:
    lines = [headings(record), tuple("---" for _ in headings(record))]
    lines += [cells(row) for row in rows(record)]
    return "\n".join("| " + " | ".join(escape(cell) for cell in line) + " |" for line in lines)


def _verdicts(candidate: Candidate) -> str:
    if not candidate.verdicts:
        return ""
    lines = [f"### {candidate.name}", ""]
    for verdict in candidate.verdicts:
        lines.append(
            f"Layer {verdict.layer}: **{verdict.outcome}**. {escape(verdict.because or '')}".rstrip()
        )
        lines += ["", "| metric | got | wanted | samples | outcome |", "|---|---|---|---|---|"]
        for c in verdict.comparisons:
            got = "-" if c.got is None else f"{c.got:.5g}"
            if c.interval:
                got += f" ({c.interval[0]:.4g} to {c.interval[1]:.4g})"
            decides = c.wanted != "reported"
            wanted, outcome = (escape(c.wanted), c.outcome) if decides else ("decides nothing", "-")
            lines.append(f"| {c.metric} | {got} | {wanted} | {c.samples or '-'} | {outcome} |")
    memory = candidate.plan.estimate.memory
    if memory:
        lines += [
            "",
            "Predicted memory: " + ", ".join(f"{t.name} {units.show_bytes(t.bytes)}" for t in memory),
        ]
    return "\n".join([*lines, ""])


def _rejected(record: Record) -> list[str]:
    if not record.rejected:
        return []
    rows = [f"- {r.engine}, {r.scheme}: {escape(r.reason)}" for r in record.rejected]
    return ["## What was not tried", "", *rows, ""]


def escape(text: str) -> str:
    """Text from outside inside a Markdown table: no cell ends early, no line breaks, no HTML."""
    return harmless(text).replace("|", "\\|").replace("<", "&lt;")

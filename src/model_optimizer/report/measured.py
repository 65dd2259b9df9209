"""The report of one measurement, without a run around it: HTML and Markdown."""

from collections.abc import Sequence

from model_optimizer.core import LoadPoint, Measurement, Slo, units

from .failures import failures
from .figures import Named, events, figures, missing, own_figures
from .page import render
from .waits import starved, waits
from .words import clean, client_words, load_words, slo_words


def measurement_html(found: Measurement, name: str) -> str:
    """The whole page; opens offline."""
    alone = Named(name=name, measurement=found)
    return render(
        "measurement.html.jinja",
        name=name,
        found=found,
        headings=headings(found),
        rows=[cells(found, point) for point in found.points],
        figures=(*figures([alone]), *own_figures(alone)),
        failures=failures(found),
        waits=waits(found),
        starved=starved(found),
        events=events(found),
        missing=missing(found),
        facts=facts(found),
        remarks=remarks(found),
        client=client_words(found.client),
        too_slow=found.client.verdict != "marked",
    )


def measurement_markdown(found: Measurement, name: str) -> str:
    """The same as text, without the pictures."""
    lines = [f"# {clean(name)}", ""]
    lines += [f"**{clean(text)}**\n" for text in warnings(found)]
    lines += [f"- {what}: {clean(text)}" for what, text in facts(found)]
    lines += ["", _markdown_table([headings(found), *(cells(found, p) for p in found.points)]), ""]
    rows = failures(found)
    if rows:
        lines += ["## What failed", ""]
        table = [
            ("load", "kind", "count", "for example"),
            *((f.load, f.kind, str(f.count), f.example) for f in rows),
        ]
        lines += [_markdown_table(table), ""]
    waited = waits(found)
    if waited:
        head = ("load", "prompt tokens", "requests", "wait P50 / P90 / P99", "overtaken by")
        table = [(w.load, w.prompts, w.requests, w.waits, w.overtaken) for w in waited]
        lines += ["## Who waited", "", *(f"**Starved**: {clean(text)}\n" for text in starved(found))]
        lines += [_markdown_table([head, *table]), ""]
    happened = events(found)
    if happened:
        lines += ["## What happened", "", *(f"- {time:.1f} s: {clean(text)}" for time, text in happened), ""]
    notes = [*remarks(found), *(f"{n}: {why}" for n, why in missing(found))]
    lines += [f"- {clean(note)}" for note in notes]
    lines += [
        "",
        "## Definitions",
        "",
        *(f"- {clean(k)}: {clean(v)}" for k, v in found.definitions.items()),
    ]
    return "\n".join(lines) + "\n"


def warnings(found: Measurement) -> list[str]:
    """What makes the numbers worth less, in big letters."""
    told = [f"Invalid: {found.invalid}"] if found.invalid else []
    told += ["Interrupted: what was measured until then"] if found.interrupted else []
    if words := client_words(found.client):
        told.append(words)
    return told


def generates(found: Measurement) -> bool:
    return any(p.output_tokens_per_s is not None for p in found.points)


def headings(found: Measurement) -> tuple[str, ...]:
    heads = ["load", "completed", "failed", "requests/s"]
    if generates(found):
        heads += ["output tokens/s", "TTFT P50 / P99", "TPOT P50 / P99"]
    return (*heads, "request P50 / P99", "energy")


def cells(found: Measurement, point: LoadPoint) -> tuple[str, ...]:
    row = [point.target, str(point.completed), str(point.failed), _rate(point.requests_per_s)]
    if generates(found):
        row += [_rate(point.output_tokens_per_s)]
        row += [f"{units.show_ms(p.p50)} / {units.show_ms(p.p99)}" for p in (point.ttft_ms, point.tpot_ms)]
    row.append(f"{units.show_ms(point.e2e_ms.p50)} / {units.show_ms(point.e2e_ms.p99)}")
    return (*row, energy(point))


def energy(point: LoadPoint) -> str:
    if point.energy_j is None:
        return "not available"
    tokens = (point.output_tokens_per_s or 0.0) * point.window_s
    count, unit = (tokens, "token") if tokens else (float(point.completed), "request")
    return f"{point.energy_j / count:.3g} J/{unit}" if count else "-"


def facts(found: Measurement) -> list[tuple[str, str]]:
    """What a reader needs before the numbers."""
    rows = [
        ("Model", found.model),
        ("Server", found.url),
        ("Interface", found.api),
        ("Machine", machine if isinstance(machine := found.telemetry.get("machine"), str) else None),
        ("Measured", found.started),
        ("By", found.made_by),
        ("Load", _load(found)),
        ("Limits", slo_words(found.slo) if found.slo and _limited(found.slo) else None),
    ]
    if found.capacity is not None:
        best = found.capacity.best
        rows.append(("Capacity", f"{best:g} {found.capacity.axis}" if best else "none met the limits"))
    sources = {p.energy_source for p in found.points if p.energy_j is not None}
    rows += [("Energy", source) for source in sorted(sources)]
    return [(what, text) for what, text in rows if text]


def _limited(slo: Slo) -> bool:
    return any(limit is not None for limit in (slo.ttft_ms, slo.tpot_ms, slo.e2e_ms))


def _load(found: Measurement) -> str | None:
    """What was asked; several levels are in the table."""
    if found.workload is None or found.made_by is not None:
        return None
    words = load_words(found.workload)
    return words.partition(", ")[2] if len(found.points) > 1 else words


def remarks(found: Measurement) -> list[str]:
    """Notes of the measurement and its points, each once."""
    told = [*found.notes, *(f"{p.target}: {n}" for p in found.points for n in p.notes)]
    told += [f"{p.target}: {p.client.because}" for p in found.points if p.client.healthy is False]
    return list(dict.fromkeys(told))


def _rate(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def _markdown_table(rows: Sequence[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(map(clean, row)) + " |" for row in rows]
    lines.insert(1, "|" + "---|" * len(rows[0]))
    return "\n".join(lines)

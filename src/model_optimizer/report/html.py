"""The report as one HTML file that opens offline: styles and charts inside, nothing fetched."""

from collections.abc import Sequence
from dataclasses import dataclass

from model_optimizer.core import Record, units

from .failures import failures
from .figures import Named, figures, own_figures
from .page import render
from .table import Row, cells, client_notes, headings, rows
from .words import client_words, load_words, machine_words, slo_words


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """One bar: its length is a share of the longest of the chart."""

    name: str
    text: str
    share: float
    fate: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    title: str
    note: str
    bars: tuple[Bar, ...]


def html(record: Record) -> str:
    """The whole page. Text from outside is escaped by the template engine."""
    lines = rows(record)
    measured = [Named(name=c.name, measurement=c.measurement) for c in record.candidates if c.measurement]
    return render(
        "report.html.jinja",
        record=record,
        headings=headings(record),
        rows=[(row, cells(row)) for row in lines],
        charts=[chart for chart in charts(record, lines) if chart.bars],
        figures=figures(measured),
        own={one.name: own_figures(one) for one in measured},
        failures=[(one.name, failure) for one in measured for failure in failures(one.measurement)],
        machine=machine_words(record.host),
        load=load_words(record.workload),
        limits=slo_words(record.slo),
        show_bytes=units.show_bytes,
        show_ms=units.show_ms,
        client_notes=client_notes(record),
        client_words=client_words,
    )


def charts(record: Record, lines: Sequence[Row]) -> tuple[Chart, ...]:
    """Throughput, latency and memory side by side; a candidate that was not measured has no bar."""
    generates = record.model.task == "generate"
    unit = "output tokens" if generates else "requests"
    return (
        Chart(
            title="Throughput",
            note=f"{unit} per second at the best of the loads; longer is better",
            bars=_bars(lines, [row.throughput_per_s for row in lines], [row.throughput for row in lines]),
        ),
        Chart(
            title="First token" if generates else "Request latency",
            note="median at the lowest load; shorter is better",
            bars=_bars(lines, [row.latency_ms for row in lines], [row.latency for row in lines]),
        ),
        Chart(
            title="Memory",
            note="most that the server's processes held under load; shorter is better",
            bars=_bars(lines, [row.memory_bytes for row in lines], [row.memory for row in lines]),
        ),
    )


def _bars(
    lines: Sequence[Row], values: Sequence[float | int | None], texts: Sequence[str]
) -> tuple[Bar, ...]:
    longest = max((v for v in values if v is not None), default=0)
    return tuple(
        Bar(name=row.name, text=text, share=value / longest, fate=row.fate)
        for row, value, text in zip(lines, values, texts, strict=True)
        if value is not None and longest
    )

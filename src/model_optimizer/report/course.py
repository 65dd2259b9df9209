"""The report of something that went on for a long time (a soak): an answer, trends, pictures over time."""

from collections.abc import Sequence
from dataclasses import dataclass

from .figures import Figure, over_time
from .page import render
from .words import clean


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """One quantity over time: hours and values. `unit` is B, ms, share or a word."""

    title: str
    unit: str
    points: Sequence[tuple[float, float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """`answer` is one word, `good` says whether it is good news. `marks` are hours at which something
    happened. Tables begin with their heading."""

    title: str
    answer: str
    good: bool
    because: tuple[str, ...]
    facts: tuple[tuple[str, str], ...]
    trends: tuple[tuple[str, ...], ...]
    panels: tuple[Panel, ...] = ()
    marks: tuple[float, ...] = ()
    failures: tuple[tuple[str, str, str], ...] = ()
    events: tuple[str, ...] = ()


def course_html(course: Course) -> str:
    """The whole page; opens offline."""
    return render("course.html.jinja", course=course, figures=_figures(course))


def course_markdown(course: Course) -> str:
    """The same as text, without the pictures."""
    lines = [f"# {clean(course.title)}", "", f"**{course.answer}**: {clean('; '.join(course.because))}", ""]
    lines += [f"- {what}: {clean(text)}" for what, text in course.facts]
    lines += ["", *_table(course.trends)]
    if course.failures:
        lines += ["", "## What failed", "", *_table((("kind", "count", "for example"), *course.failures))]
    if course.events:
        lines += ["", "## What happened", "", *(f"- {clean(event)}" for event in course.events)]
    return "\n".join(lines) + "\n"


def _figures(course: Course) -> list[Figure]:
    end = max((p[0] for panel in course.panels for p in panel.points), default=0.0)
    return [
        over_time(panel.title, panel.unit, panel.points, end=end, marks=course.marks)
        for panel in course.panels
        if len(panel.points) > 1
    ]


def _table(rows: Sequence[Sequence[str]]) -> list[str]:
    lines = ["| " + " | ".join(map(clean, row)) + " |" for row in rows]
    lines.insert(1, "|" + "---|" * len(rows[0]))
    return lines

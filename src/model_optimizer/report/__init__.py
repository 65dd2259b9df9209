"""A finished run or a measurement, for people: one table, one page of Markdown, one offline HTML file."""

from .course import Course, Panel, course_html, course_markdown
from .html import html
from .markdown import markdown
from .measured import measurement_html, measurement_markdown
from .study import study_html, study_markdown
from .table import Row, rows

__all__ = [
    "Course",
    "Panel",
    "Row",
    "course_html",
    "course_markdown",
    "html",
    "markdown",
    "measurement_html",
    "measurement_markdown",
    "rows",
    "study_html",
    "study_markdown",
]

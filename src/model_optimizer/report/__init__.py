"""A finished run or a measurement, for people: one table, one page of Markdown, one offline HTML file."""

from .html import html
from .markdown import markdown
from .measured import measurement_html, measurement_markdown
from .table import Row, rows

__all__ = ["Row", "html", "markdown", "measurement_html", "measurement_markdown", "rows"]

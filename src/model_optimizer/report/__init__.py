"""A finished run, for people: one table, one page of Markdown, one offline HTML file."""

from .html import html
from .markdown import markdown
from .table import Row, rows

__all__ = ["Row", "html", "markdown", "rows"]

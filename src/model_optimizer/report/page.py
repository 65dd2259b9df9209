"""Renders a template of this folder: text from outside is escaped, control characters are shown."""

from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

from .words import harmless

if TYPE_CHECKING:
    from jinja2 import Environment


def render(template: str, **values: object) -> str:
    """The whole page as text."""
    page = _environment().get_template(template).render(**values)
    return "\n".join(harmless(line) for line in page.split("\n")) + "\n"


@cache
def _environment() -> "Environment":
    from jinja2 import Environment, FunctionLoader, StrictUndefined

    return Environment(
        autoescape=lambda name: name is None or not name.endswith(".css"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        loader=FunctionLoader(lambda name: (files(__package__ or __name__) / name).read_text("utf-8")),
    )

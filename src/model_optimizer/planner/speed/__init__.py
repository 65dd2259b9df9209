"""How long one step of an engine takes: from arithmetic, from tables, or from the user's own measurements."""

from .roofline import Roofline, roofline
from .setup import Setup

__all__ = ["Roofline", "Setup", "roofline"]

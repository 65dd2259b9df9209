"""Load for hours or days at a bounded rate, and whether the server held: errors, leaks, drift, restarts."""

from . import journal
from .journal import Journal
from .nouns import Look, Soak, SoakWindow, Task, Trend
from .run import Load, run
from .verdict import judge

__all__ = ["Journal", "Load", "Look", "Soak", "SoakWindow", "Task", "Trend", "journal", "judge", "run"]

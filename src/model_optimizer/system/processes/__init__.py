"""Start outside programs, follow them, and stop exactly what was started.

Every program gets a session, and so a process group, of its own: stopping it reaches its children too
and nothing else. Nothing is ever stopped by its name.
"""

from .begin import Rotation, begin_log, free_port, start
from .running import Running, ask_to_end, attach, own_start
from .said import how_it_ended, tail
from .signals import interruptible, uninterrupted
from .whole import Ended, follow, run, timed_out

__all__ = [
    "Ended",
    "Rotation",
    "Running",
    "ask_to_end",
    "attach",
    "begin_log",
    "follow",
    "free_port",
    "how_it_ended",
    "interruptible",
    "own_start",
    "run",
    "start",
    "tail",
    "timed_out",
    "uninterrupted",
]

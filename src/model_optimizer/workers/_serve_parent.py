"""A server or a job that belongs to a program ends with it, also when that program is killed."""

import os
import signal
import threading
import time

VARIABLE = "MOPT_PARENT_PID"
EVERY_S = 1.0
GRACE_S = 10.0
_detached = threading.Event()


def end_with_parent() -> None:
    """Watch the program that started this one, if it asked for that; a detached server goes on without it."""
    named = os.environ.get(VARIABLE, "")
    if named.isdigit():
        watch(int(named))
    else:
        _detached.set()


def watch(parent: int) -> None:
    """End this process soon after `parent` did."""
    threading.Thread(target=_watch, args=(parent,), name="parent", daemon=True).start()


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(EVERY_S)
    if _detached.is_set():
        return
    _end(signal.SIGTERM)
    time.sleep(GRACE_S)
    _end(signal.SIGKILL)


def _end(number: int) -> None:
    """This process and those that it started, which share its group; never a group that is not its own."""
    if os.getpgrp() == os.getpid():
        os.killpg(os.getpid(), number)
    else:
        os.kill(os.getpid(), number)

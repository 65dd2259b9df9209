"""What ends this process, while it has something to tidy up."""

import signal
import threading
from collections.abc import Generator
from contextlib import contextmanager


@contextmanager
def interruptible() -> Generator[None]:
    """While inside, a polite end of this process (SIGTERM, a closed terminal) unwinds like Ctrl-C, so that
    what was started is stopped and what is half made is removed."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    wanted = [n for n in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(n) == signal.SIG_DFL]
    for number in wanted:
        signal.signal(number, _interrupt)
    try:
        yield
    finally:
        for number in wanted:
            signal.signal(number, signal.SIG_DFL)


@contextmanager
def uninterrupted() -> Generator[None]:
    """While inside, Ctrl-C and a polite end of this process are not heard: for what must be finished."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {n: signal.signal(n, signal.SIG_IGN) for n in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _interrupt(_signal: int, _frame: object) -> None:
    raise KeyboardInterrupt

"""Progress on stderr: one line that changes on a terminal, one line a step in a pipe."""

import sys
import time


class Reporter:
    """Call it with what is being done and the share done (0 to 1), or None when that is unknown."""

    def __init__(self, *, interval_s: float = 0.1) -> None:
        self._live = sys.stderr.isatty()
        self._interval_s = interval_s
        self._last_text = ""
        self._last_time = 0.0
        self._width = 0

    def __call__(self, text: str, share: float | None = None) -> None:
        now = time.monotonic()
        if not self._live:
            if text != self._last_text:
                sys.stderr.write(f"{text}\n")
                sys.stderr.flush()
        elif text != self._last_text or now - self._last_time >= self._interval_s:
            line = f"{text} {share:4.0%}" if share is not None else text
            sys.stderr.write(f"\r{line.ljust(self._width)}")
            sys.stderr.flush()
            self._width = len(line)
            self._last_time = now
        self._last_text = text

    def close(self) -> None:
        """Leave the terminal on a clean line."""
        if self._live and self._width:
            sys.stderr.write(f"\r{' ' * self._width}\r")
            sys.stderr.flush()
            self._width = 0

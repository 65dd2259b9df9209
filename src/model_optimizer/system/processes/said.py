"""What a program said, and how it ended, in words."""

import os
import signal
from pathlib import Path

_TAIL_BYTES = 1 << 17


def tail(log: Path, lines: int = 20, *, from_byte: int = 0) -> tuple[str, ...]:
    """The last lines of a file that may be long, none of them before `from_byte`; () when there is none."""
    try:
        with log.open("rb") as stream:
            stream.seek(0, os.SEEK_END)
            stream.seek(max(0, from_byte, stream.tell() - _TAIL_BYTES))
            text = decode(stream.read(_TAIL_BYTES))  # a device has no end
    except OSError:
        return ()
    return tuple(line.rstrip() for line in text.rstrip().splitlines()[-lines:] if line.strip())


def how_it_ended(code: int) -> str:
    """An exit code in words: `exit code 1`, `killed by SIGKILL`."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"killed by signal {-code}"


def decode(data: bytes) -> str:
    return data.decode("utf-8", errors="replace")

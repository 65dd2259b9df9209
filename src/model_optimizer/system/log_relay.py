"""Takes what a program prints from a pipe to a log that stays small, however long the program runs.

Run as a script of its own, so that it lives as long as the program, whoever started that:
`python log_relay.py LOG LIMIT OLDER HEAD`, its output being LOG as it was opened. LOG gets no longer than
LIMIT bytes: then it becomes LOG.1, LOG.1 becomes LOG.2, and so on up to OLDER files, and the new LOG begins
with the first HEAD bytes of the old one (how the program started), so that beginning and end stand in one
file. What a full disk does not take is dropped and counted: the program never waits for it.
"""

import os
import signal
import sys
from contextlib import suppress
from pathlib import Path

CHUNK = 1 << 16


class Bounded:
    """The log. `head` is how many of its first bytes every later file begins with."""

    def __init__(self, stream: int, path: Path, limit: int, older: int, head: int) -> None:
        self._stream, self._path = (
            stream,
            path.resolve(),
        )  # a link is followed once: files turn where it points
        self._limit, self._older, self._head = limit, older, head
        self._size = os.fstat(stream).st_size
        self._begin = -1  # bytes that the file began with; -1: they are its own
        self._left_out = self._dropped = 0

    def write(self, data: bytes) -> None:
        """Lines stay whole where the room allows it."""
        if self._dropped:
            data = b"[mopt] about %d bytes could not be written here\n" % self._dropped + data
            self._dropped = 0
        fresh = False
        while data:
            room = max(self._limit - self._size, 0)
            fits = len(data) if len(data) <= room else data.rfind(b"\n", 0, room) + 1
            if fresh and not fits:
                fits = room or len(data)
            self._put(data[:fits])
            data = data[fits:]
            if data and not (fresh := self._turn()):
                self._put(data)
                return

    def _put(self, data: bytes) -> None:
        written = 0
        try:
            while written < len(data):
                written += os.write(self._stream, data[written:])
        except OSError:
            self._dropped += len(data) - written
        self._size += written

    def _turn(self) -> bool:
        """Begin a new file; False when that cannot be done: then the old one grows on."""
        # A name that nobody has: what lies there, or a link that was put there, is not written to.
        fresh = beside(self._path, f"{os.getpid()}.{os.urandom(4).hex()}.new")
        try:
            with self._path.open("rb") as old:
                head = old.read(self._head)
            if self._begin < 0:
                head = head[: head.rfind(b"\n") + 1]
                self._head = self._begin = len(head)
            gone = self._left_out + self._size - self._begin
            note = b"[mopt] %d bytes are left out here; the last of them are in %s.1\n"
            begin = head + note % (gone, os.fsencode(self._path.name))
            stream = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_APPEND, 0o600)
            try:
                os.fchmod(stream, os.fstat(self._stream).st_mode & 0o777)
                if os.write(stream, begin) < len(begin):
                    raise OSError("the disk is full")
                shift(self._path, self._older)
                fresh.replace(self._path)
            except OSError:
                os.close(stream)
                raise
        except OSError:
            with suppress(OSError):
                fresh.unlink()
            return False
        os.close(self._stream)
        self._stream, self._size, self._begin, self._left_out = stream, len(begin), len(begin), gone
        return True


def beside(path: Path, ending: str | int) -> Path:
    return path.with_name(f"{path.name}.{ending}")


def shift(path: Path, older: int) -> None:
    """LOG.1 becomes LOG.2 and so on, the last one goes, and LOG becomes LOG.1."""
    for number in range(older - 1, 0, -1):
        with suppress(FileNotFoundError):
            beside(path, number).replace(beside(path, number + 1))
    path.replace(beside(path, 1))


def main(path: str, limit: str, older: str, head: str) -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # it ends with the last who writes
    log = Bounded(sys.stdout.fileno(), Path(path), int(limit), int(older), int(head))
    while data := os.read(sys.stdin.fileno(), CHUNK):
        log.write(data)


if __name__ == "__main__":
    main(*sys.argv[1:])

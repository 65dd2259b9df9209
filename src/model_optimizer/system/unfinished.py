"""Names of what is not finished yet, and removing what a killed process left of it.

A name says on which machine its owner runs, a lock whether the owner lives. Both are asked: a lock of one
machine says nothing of another one that shares the folder, and process numbers say nothing of another
container. What is not surely ours and dead stays.
"""

import os
import re
import secrets
import shutil
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

_EARLY = ".new"
_SETTLED_S = 60.0
_LONGEST_BYTES = 120
_DOINGS = ("building", "between", "removed", "replaced")


def beside(path: Path, doing: str) -> Path:
    """A new hidden name beside `path`: of this machine, of this process, and of no other try."""
    return path.with_name(f"{_begin(path, doing)}{os.getpid()}-{secrets.token_hex(4)}")


def temporary(place: Path) -> Path:
    """A new name for a temporary folder in `place`."""
    return place / f"{_temporary()}{secrets.token_hex(4)}.tmp"


def is_temporary(place: Path) -> bool:
    """Whether it is called like a temporary folder that was made on this machine."""
    return re.fullmatch(rf"{_temporary()}[0-9a-f]{{8}}\.tmp", place.name) is not None


def make(folder: Path, mode: int = 0o777) -> int:
    """Make a folder and lock it; it gets its name after that, so that nobody takes it for one that was left.

    The open folder, which holds the lock until it is closed by this process and all children that inherit it.
    Raises OSError.
    """
    early = folder.with_name(folder.name + _EARLY)
    early.mkdir(mode=mode)
    place = -1
    try:
        place = _open(early)
        lock(place)
        early.rename(folder)
    except OSError:
        if place >= 0:
            os.close(place)
        early.rmdir()
        raise
    return place


@contextmanager
def held(folder: Path) -> Generator[bool]:
    """Hold the lock of a folder while inside, also when it gets another name. False where another process has
    it, where it is another user's, and where there are no such locks (a network disk)."""
    place = _open(folder)
    try:
        yield lock(place) and os.fstat(place).st_uid == os.geteuid()
    finally:
        os.close(place)


def lock(folder: int) -> bool:
    """Take the lock of an open folder, if nobody has it."""
    import fcntl

    try:
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def sweep(path: Path) -> None:
    """Remove what a killed process of this machine left beside `path`. What it had renamed to make room for
    its own gets its name back where nothing took it."""
    for doing in _DOINGS:
        for left in _dead(path.parent, rf"{re.escape(_begin(path, doing))}\d+-[0-9a-f]{{8}}"):
            if doing == "replaced" and not os.path.lexists(path):
                with suppress(OSError):
                    left.rename(path)
            else:
                shutil.rmtree(left, ignore_errors=True)


def sweep_temporary(place: Path) -> None:
    """Remove temporary folders of killed processes of this machine."""
    for left in _dead(place, rf"{_temporary()}[0-9a-f]{{8}}\.tmp"):
        shutil.rmtree(left, ignore_errors=True)


def _dead(place: Path, name: str) -> Generator[Path]:
    """Folders of ours that nobody works on; each is locked while the caller has it."""
    wanted = re.compile(rf"(?:{name})(?:{re.escape(_EARLY)})?")
    with suppress(OSError), os.scandir(place) as entries:
        found = [Path(entry.path) for entry in entries if wanted.fullmatch(entry.name)]
        for folder in found:
            with suppress(OSError):
                if folder.suffix == _EARLY and time.time() - folder.lstat().st_mtime < _SETTLED_S:
                    continue  # perhaps made a moment ago, and not locked yet
                with held(folder) as mine:
                    if mine:
                        yield folder


@cache
def origin() -> str:
    """Names this machine in eight characters: by its host name and the number that its system was given, or
    that of this boot where it has none."""
    import hashlib

    known = ""
    for source in ("/etc/machine-id", "/proc/sys/kernel/random/boot_id"):
        with suppress(OSError):
            known = known or Path(source).read_text(encoding="ascii", errors="replace").strip()
    return hashlib.sha256(f"{os.uname().nodename} {known}".encode()).hexdigest()[:8]


def _open(folder: Path) -> int:
    """No child inherits it unless it is told to."""
    return os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)


def _begin(path: Path, doing: str) -> str:
    return f".{_short(path.name)}.{doing}-{origin()}-"


def _temporary() -> str:
    return f"mopt-{origin()}-"


def _short(name: str) -> str:
    """A long name cut, and told from others that begin alike: hidden ones end at 255 bytes too."""
    import hashlib

    whole = os.fsencode(name)
    if len(whole) <= _LONGEST_BYTES:
        return name
    return whole[:_LONGEST_BYTES].decode("utf-8", "ignore") + hashlib.sha256(whole).hexdigest()[:8]

"""Files and folders that are either whole or not there, and errors about them in the user's words."""

import errno
import os
import shutil
import stat
import sys
import tempfile
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path

from model_optimizer.core import HostError, UsageError
from model_optimizer.core.units import show_bytes

from . import unfinished

LONGEST_FOR_SOCKETS = 64
"""Bytes of a folder's name. That of a Unix socket has 107 at most (unix(7)), and behind the folder those of
vLLM have 36, those of Python's multiprocessing 31."""

_FULL = {errno.ENOSPC, errno.EDQUOT}
_REFUSED = {errno.EACCES, errno.EPERM, errno.EROFS}


def data_home() -> Path:
    """Where the product keeps what it makes for a user: MOPT_HOME, else the system's own place."""
    if named := os.environ.get("MOPT_HOME"):
        return expanded(named).absolute()
    if sys.platform == "darwin":
        return home() / "Library" / "Application Support" / "model-optimizer"
    base = Path(os.environ.get("XDG_DATA_HOME", ""))  # to be ignored where it is relative
    return (base if base.is_absolute() else home() / ".local" / "share") / "model-optimizer"


def home() -> Path:
    """The home folder of this user: HOME, else what the system knows. Raises HostError when there is none."""
    import pwd

    named = Path(os.environ.get("HOME", ""))
    if named.is_absolute():
        return named
    try:
        return Path(pwd.getpwuid(os.getuid()).pw_dir)
    except KeyError:
        raise HostError(
            f"user {os.getuid()} has no home folder",
            cause=("HOME is not set, and the system does not know this user",),
            hint=("set HOME, or MOPT_HOME to a folder that you may write in",),
        ) from None


def expanded(path: Path | str) -> Path:
    """`~` and `~user` as the folders that they stand for; left as they are where nobody knows them."""
    try:
        return Path(path).expanduser()
    except RuntimeError:
        return Path(path)


def write_atomic(path: Path, content: bytes | str) -> None:
    """Write a file whole or not at all: a temporary name beside it, then a rename.

    A device or pipe (`/dev/stdout`) is written to directly. Raises HostError.
    """
    data = content.encode() if isinstance(content, str) else content
    with explained(path):
        if path.exists() and not path.is_file() and not path.is_dir():
            path.write_bytes(data)
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        target = path.resolve()
        beside = unfinished.beside(target, "writing")
        try:
            _write_synced(beside, data)
            beside.replace(target)
        finally:
            beside.unlink(missing_ok=True)


@contextmanager
def building(path: Path, *, replace: bool = False) -> Generator[Path]:
    """Yield a new folder beside `path`; it takes that name on success and vanishes on failure.

    What is at `path` already stays untouched until then. An existing folder that holds something is
    refused with a UsageError unless `replace` is set. What a killed process left of the same name goes.
    """
    path = path.absolute()
    unfinished.sweep(path)
    if not replace:
        _refuse_existing(path)
    with _beside(path, "building") as beside:
        yield beside
        rename_into_place(beside, path, replace=replace)


@contextmanager
def between(path: Path) -> Generator[Path]:
    """Yield a new folder beside `path` for what is made on the way to it, gone afterwards. What a killed
    process left of the same name goes."""
    path = path.absolute()
    unfinished.sweep(path)
    with _beside(path, "between") as beside:
        yield beside


@contextmanager
def _beside(path: Path, doing: str) -> Generator[Path]:
    """A hidden folder, locked as long as it has this name."""
    beside = unfinished.beside(path, doing)
    with explained(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        held = unfinished.make(beside)
    try:
        with explained(path, within=beside):
            yield beside
    finally:
        shutil.rmtree(beside, ignore_errors=True)
        os.close(held)


def rename_into_place(temporary: Path, path: Path, *, replace: bool = True) -> None:
    """Give a finished folder or file its name. With `replace`, what had it before is put back on failure."""
    if not replace:
        _refuse_existing(path)
    with explained(path):
        if not path.is_dir() or path.is_symlink() or not temporary.is_dir():
            temporary.replace(path)
            return
        old = unfinished.beside(path, "replaced")
        with unfinished.held(path):
            path.rename(old)
            try:
                temporary.rename(path)
            except OSError:
                old.rename(path)
                raise
            shutil.rmtree(old, ignore_errors=True)


@contextmanager
def temporary() -> Generator[Path]:
    """A folder of our own for small files, gone afterwards. Raises HostError when there is no room.

    One whose owner was killed goes when the next one is made: nobody holds its lock.
    """
    parent = Path(tempfile.gettempdir())
    unfinished.sweep_temporary(parent)
    place = unfinished.temporary(parent)
    try:
        held = unfinished.make(place, 0o700)
    except OSError as error:
        raise HostError(
            "no temporary folder can be made",
            cause=(error.strerror or str(error),),
            hint=("make room in /tmp, or set TMPDIR to a folder on another disk",),
            reference="disk-full",
        ) from error
    try:
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)
        os.close(held)


def temporary_for_another() -> tuple[Path, int] | None:
    """A temporary folder for a program that may outlive this one, and the same folder opened, which the
    program is to inherit: while it has it, the folder is locked. Later it goes with the next that is made.

    None where there is no room, or where sockets in it would have too long a name.
    """
    with suppress(OSError):
        parent = Path(tempfile.gettempdir())
        unfinished.sweep_temporary(parent)
        place = unfinished.temporary(parent)
        if len(os.fsencode(place)) <= LONGEST_FOR_SOCKETS:
            return place, unfinished.make(place, 0o700)
    return None


def free_bytes(path: Path) -> int | None:
    """Room on the disk that holds `path`, which need not exist yet; None when it cannot be read."""
    place = path.absolute()
    while not place.exists() and place != place.parent:
        place = place.parent
    try:
        return shutil.disk_usage(place).free
    except OSError:
        return None


def require_writable(folder: Path) -> None:
    """Raises HostError for a folder in which nothing can be made."""
    if not os.access(folder, os.W_OK | os.X_OK):
        raise host_error(PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(folder)), folder)


def require_room(path: Path, wanted_bytes: int, what: str) -> None:
    """Refuse to begin what the disk cannot hold. Unknown room is let pass."""
    free = free_bytes(path)
    if free is not None and free < wanted_bytes:
        raise HostError(
            f"{what} needs {show_bytes(wanted_bytes)} of disk, {show_bytes(free)} are free",
            cause=(f"the disk that holds {path}",),
            hint=(
                "make room there, or choose a place on a larger disk (MOPT_HOME names that of environments)",
            ),
            reference="disk-full",
        )


def size_bytes(path: Path) -> int:
    """What a file or folder takes on the disk (blocks, hard links counted once)."""
    seen: set[tuple[int, int]] = set()
    total = 0
    for place in [path, *path.rglob("*")] if path.is_dir() else [path]:
        with suppress(OSError):
            found = place.lstat()
            if (found.st_dev, found.st_ino) not in seen:
                seen.add((found.st_dev, found.st_ino))
                total += found.st_blocks * 512
    return total


@contextmanager
def locked(path: Path, *, waiting: Callable[[], None] | None = None) -> Generator[None]:
    """Hold the lock file `path`; one process at a time does. `waiting` is called once if it is held."""
    import fcntl
    import time

    with explained(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        stream = path.open("a")
    with stream:
        told = False
        while True:
            try:
                fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if waiting and not told:
                    waiting()
                told = True
                time.sleep(0.2)
        yield


def host_error(error: OSError, path: Path) -> HostError:
    """What the system said about `path`, as an error of ours."""
    cause = (f"{error.strerror or error}: {error.filename or path}",)
    if error.errno in _FULL:
        return HostError(
            f"the disk that holds `{path}` is full",
            cause=cause,
            hint=("make room and run it again; nothing half-written was left behind",),
            reference="disk-full",
        )
    if error.errno in _REFUSED:
        return HostError(
            f"`{path}` cannot be written",
            cause=cause,
            hint=("choose another place, or mend the rights of that folder",),
            reference="not-writable",
        )
    return HostError(f"`{path}` cannot be written", cause=cause, reference="not-writable")


@contextmanager
def explained(path: Path, *, within: Path | None = None) -> Generator[None]:
    """OSError to HostError. `within` limits it to a full or refusing disk: the rest is not ours to judge."""
    try:
        yield
    except OSError as error:
        if within is not None and error.errno not in _FULL | _REFUSED:
            raise
        raise host_error(error, path) from error


def _refuse_existing(path: Path) -> None:
    if path.is_dir() and not any(path.iterdir()):
        return
    if path.exists() or path.is_symlink():
        raise UsageError(f"`{path}` exists already", hint=("name another place, or remove it first",))


def _write_synced(path: Path, data: bytes) -> None:
    with path.open("xb") as stream:
        stream.write(data)
        stream.flush()
        if stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
            os.fsync(stream.fileno())

"""What every worker shares: how it is asked, how it says where it is, and how it answers or fails.

A worker is run as `ENV_PYTHON -P WORKER request.json result.json`. It imports the standard library and
the packages of its environment, and begins with

    sys.path.append(str(Path(__file__).resolve().parent))
    from _contract import fail, main, progress

(`-P` keeps a script's folder off the path; appended, a sibling never shadows a package) and ends with
`if __name__ == "__main__": main(job)`, where `job` takes the request and returns the result.
"""

import contextlib
import errno
import json
import os
import signal
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

TRACEBACK_LINES = 80
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class Failure(Exception):
    """An expected failure, in the user's words. `fail` raises it and `main` writes it down."""

    def __init__(
        self, reference: str, message: str, cause: Sequence[str] = (), hint: Sequence[str] = ()
    ) -> None:
        super().__init__(message)
        self.reference = reference
        self.message = message
        self.cause = tuple(cause)
        self.hint = tuple(hint)


def fail(reference: str, message: str, cause: Sequence[str] = (), hint: Sequence[str] = ()) -> NoReturn:
    """Stop with an error: a stable short reference, one line of what, why, and what to do next."""
    raise Failure(reference, message, cause, hint)


def blame(error: Exception, reference: str, message: str, hint: Sequence[str] = ()) -> NoReturn:
    """Say that a library failed, in one line; its traceback goes to the log.

    What the machine is to blame for (memory, disk) is raised again, for `main` to explain.
    """
    if isinstance(error, Failure | MemoryError) or _disk_is_full(error):
        raise error
    sys.stderr.write(_shortened(error))
    fail(reference, message, [brief(error)], hint)


def progress(text: str, share: float | None = None) -> None:
    """Say what is being done and the share done (0 to 1); None when the share cannot be known."""
    line = {"progress": text} if share is None else {"progress": text, "share": round(share, 4)}
    sys.stderr.write(json.dumps(line) + "\n")
    sys.stderr.flush()


def read_request() -> dict[str, Any]:
    """What the worker is asked to do."""
    return json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))


def finish(result: Mapping[str, Any]) -> None:
    """Write the answer: whole or not at all."""
    target = Path(sys.argv[2])
    beside = target.with_name(f"{target.name}.{os.getpid()}.tmp")
    beside.write_text(json.dumps(result), encoding="utf-8")
    beside.replace(target)


def main(job: Callable[[dict[str, Any]], Mapping[str, Any]]) -> NoReturn:
    """Read the request, do the job, write its result with `peak_memory_bytes`, and exit.

    0 after a result, 1 after an error (also one that nobody foresaw: its traceback goes to the log).
    What libraries print on stdout goes to the log as well. A polite stop (SIGTERM) unwinds the job, so
    that what it made half is removed; so does the end of the program that started it.
    """
    from _serve_parent import watch

    watch(os.getppid())
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    sys.stdout.flush()
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    signal.signal(signal.SIGTERM, _stop)
    try:
        result = job(read_request())
        finish({**result, "peak_memory_bytes": peak_memory_bytes()})
    except Exception as error:  # noqa: BLE001 - whatever happened, the caller gets an answer
        failure = _explain(error)
        with contextlib.suppress(OSError):
            finish({"error": _as_error(failure)})
        sys.exit(1)
    sys.exit(0)


def brief(error: BaseException) -> str:
    """The kind and the first line of an error, for a `cause`."""
    text = str(error).strip()
    kind = type(error).__name__
    return f"{kind}: {text.splitlines()[0][:300]}" if text else kind


def peak_memory_bytes() -> int | None:
    """The most memory that this process held at once, None where the kernel does not say."""
    try:
        status = Path("/proc/self/status").read_text(encoding="ascii")
    except OSError:
        return None
    found = next((line.split() for line in status.splitlines() if line.startswith("VmHWM:")), None)
    return int(found[1]) * 1024 if found else None


def _as_error(failure: Failure) -> dict[str, Any]:
    return {
        "reference": failure.reference,
        "message": failure.message,
        "cause": list(failure.cause),
        "hint": list(failure.hint),
    }


def _explain(error: Exception) -> Failure:
    if isinstance(error, Failure):
        return error
    sys.stderr.write(_shortened(error))
    cause = (brief(error),)
    if isinstance(error, MemoryError):
        return Failure("out-of-memory", "the machine has too little memory for this", cause)
    if _disk_is_full(error):
        return Failure("disk-full", "the disk is full", cause, ("make room and run it again",))
    name = Path(sys.argv[0]).stem
    return Failure("tool-failed", f"`{name}` failed", cause, ("the log has the whole traceback",))


def _shortened(error: BaseException) -> str:
    lines = "".join(traceback.format_exception(error)).splitlines()
    if len(lines) > TRACEBACK_LINES:
        half = TRACEBACK_LINES // 2
        lines = [*lines[:half], f"... {len(lines) - 2 * half} lines left out ...", *lines[-half:]]
    return "\n".join(lines) + "\n"


def _disk_is_full(error: BaseException | None) -> bool:
    """Also where a library wraps what the system said, or says it in words of its own."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in FULL:
            return True
        if any(os.strerror(number) in str(error) for number in FULL):
            return True
        error = error.__cause__
    return False


def _stop(_signal: int, _frame: object) -> NoReturn:
    sys.exit(128 + signal.SIGTERM)

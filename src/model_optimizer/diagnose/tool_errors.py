"""An error of an outside tool, with what its log says about it."""

from pathlib import Path

from model_optimizer.core import MoptError

from .run import of_text

WHOLE_LOG = "the whole log: "
"""How a hint names the log of a tool."""

TAIL_BYTES = 1 << 20
STEPS = 2


def explained(error: MoptError) -> MoptError:
    """The same error with the cause that its log (or its own lines) shows before all others; unchanged when
    none is sure.

    The log is the one that a hint names. Nothing is raised when it cannot be read.
    """
    log = next((Path(h.removeprefix(WHOLE_LOG)) for h in error.hint if h.startswith(WHOLE_LOG)), None)
    primary = of_text((*_tail(log), *error.cause) if log else error.cause).primary
    if primary is None or primary.confidence == "low":
        return error
    said = f"{primary.id}: {primary.cause}"
    if said in error.cause:
        return error
    more = (f"mopt diagnose {log} shows the lines",) if log else ()
    return type(error)(
        error.message,
        cause=(said, *error.cause),
        hint=(*primary.fix[:STEPS], *error.hint, *more),
        reference=error.reference,
    )


def _tail(log: Path) -> tuple[str, ...]:
    try:
        with log.open("rb") as stream:
            stream.seek(max(0, log.stat().st_size - TAIL_BYTES))
            return tuple(stream.read(TAIL_BYTES).decode("utf-8", "replace").splitlines())
    except OSError:
        return ()

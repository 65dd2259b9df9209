"""Diagnose a log: a file of any size, a stream, lines in memory, or what a command prints."""

import dataclasses
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from model_optimizer.core import Host, UsageError
from model_optimizer.core.diagnosis import Command, Diagnosis

from . import reading, signature
from .judge import judge
from .match import Matcher

SILENT_LIMIT_S = 600.0


class Diagnosing:
    """A diagnosis in the making: hand it text as it comes, then ask for the answer."""

    def __init__(self, host: Host | None = None) -> None:
        self.signatures = signature.load()
        self.seen = Matcher(self.signatures)
        self._host = host

    def read(self, chunks: Iterable[bytes], *, name: str) -> None:
        """All of a stream. Raises UsageError when it is not text."""
        for block, whole in reading.blocks(chunks, name=name):
            self.seen.feed(block, whole=whole)

    def line(self, text: str) -> None:
        """One line, without its end."""
        self.text(text + "\n")

    def text(self, text: str) -> None:
        """Lines that are text already."""
        for block, whole in reading.lines([text.encode("utf-8", "replace")]):
            self.seen.feed(block, whole=whole)

    def answer(self) -> Diagnosis:
        return judge(self.seen, self._host)

    def answer_about(
        self, log: Path | None, *, pid: int | None, limit_s: float = SILENT_LIMIT_S
    ) -> Diagnosis:
        """The answer, with what the silence of the log and of the process says."""
        from model_optimizer.system import process_look

        from .silence import judge_silence

        return judge_silence(
            self.answer(),
            self.seen.last_lines,
            self.signatures,
            limit_s=limit_s,
            silent_s=process_look.age_s(log) if log else None,
            look=process_look.look(pid) if pid is not None else None,
            host=self._host,
        )


def of_text(lines: Iterable[str], *, host: Host | None = None) -> Diagnosis:
    """The diagnosis of lines in memory, such as the end of a tool's log."""
    at_work = Diagnosing(host)
    at_work.text("\n".join(lines))
    return at_work.answer()


def of_file(
    log: Path | None,
    *,
    host: Host | None = None,
    pid: int | None = None,
    silent_limit_s: float | None = None,
) -> Diagnosis:
    """The diagnosis of a file, or of standard input when `log` is None.

    `pid` or `silent_limit_s` also judge its silence. Raises UsageError when it cannot be read or is no text.
    """
    at_work = Diagnosing(host)
    if log is None:
        at_work.read(reading.chunks_of(sys.stdin.buffer), name="standard input")
    else:
        try:
            with log.open("rb") as stream:
                at_work.read(reading.chunks_of(stream), name=str(log))
        except OSError as error:
            raise UsageError(
                f"`{log}` cannot be read",
                cause=(error.strerror or str(error),),
                hint=("name a log file, or - for standard input",),
            ) from error
    if pid is None and silent_limit_s is None:
        return at_work.answer()
    return at_work.answer_about(log, pid=pid, limit_s=silent_limit_s or SILENT_LIMIT_S)


def of_command(
    command: Sequence[str], *, host: Host | None = None, on_line: Callable[[str], None]
) -> Diagnosis:
    """Run a command to its end, hand on each line that it prints, and say why it failed.

    Raises HostError when it cannot be started. Interrupting this ends the command and all it started.
    """
    from model_optimizer.system import files, processes

    at_work = Diagnosing(host)

    def take(text: str) -> bool:
        at_work.line(text)
        on_line(text)
        return True

    begun = time.monotonic()
    with files.temporary() as place:
        code = processes.follow(command, take, log=place / "log", merged=True)
    done = Command(argv=tuple(command), exit_code=code, seconds=time.monotonic() - begun)
    if code < 0:
        at_work.line(f"the command was {processes.how_it_ended(code)}")
    found = at_work.answer()
    if code == 0:
        found = dataclasses.replace(found, primary=None, needed=())
    return dataclasses.replace(found, command=done)

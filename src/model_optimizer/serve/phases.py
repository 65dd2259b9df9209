"""What a starting server is doing, from the lines of its log, and how long it will still take.

Earlier starts of the same engine, version, model and GPU say how long: what came after the phase that a start
is in is what will come after it now.
"""

import json
import re
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

FIRST = "loading"
"""What a server does that has not said anything yet."""

MOST_BYTES = 1 << 20
"""Of new log that one look reads; of more, the end."""

_PERCENT = re.compile(r"\b(\d{1,3})% ?\|?")
_ENDS = re.compile(r"[\r\n]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """`at_s` is when it began, in seconds after the start."""

    name: str
    at_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """One start that ended with a server that answers."""

    seconds: float
    phases: tuple[Phase, ...] = ()
    date: str = ""

    def begin_of(self, name: str) -> float | None:
        return next((p.at_s for p in self.phases if p.name == name), None)


def left_s(earlier: Sequence[Start], phase: Phase, now_s: float) -> float | None:
    """Seconds until a start is ready that is in `phase`; None when no earlier one can say, or when it is
    already over what they took. The median of what earlier ones took from the begin of that phase."""
    spans = [s.seconds - at for s in earlier if (at := s.begin_of(phase.name)) is not None]
    if spans:
        rest = statistics.median(spans) - (now_s - phase.at_s)
    elif earlier:
        rest = statistics.median(s.seconds for s in earlier) - now_s
    else:
        return None
    return rest if rest > 0 else None


class Reader:
    """Follows a log. `stages` are words of the engine, in any case, and what they mean, the latest first."""

    def __init__(self, log: Path, stages: Sequence[tuple[str, str]], *, from_byte: int = 0) -> None:
        self._log, self._at, self._rest = log, from_byte, ""
        self._stages = tuple((words.lower(), meaning) for words, meaning in stages)
        self.phases: list[Phase] = [Phase(name=FIRST, at_s=0.0)]
        self.percent: int | None = None

    @property
    def phase(self) -> Phase:
        return self.phases[-1]

    def look(self, now_s: float) -> None:
        """Read what was written since the last look."""
        lines = _ENDS.split(self._rest + self._new())
        self._rest = lines.pop()[-4096:]
        for line in lines:
            self._line(line, now_s)

    def _line(self, line: str, now_s: float) -> None:
        name = self._meaning(line)
        if name is not None and name != self.phase.name:
            self.percent = None
            if all(p.name != name for p in self.phases):
                self.phases.append(Phase(name=name, at_s=now_s))
        if name is not None and (found := _PERCENT.search(line)) and int(found[1]) <= 100:
            self.percent = int(found[1])

    def _meaning(self, line: str) -> str | None:
        """A worker's own words, or words of the engine that are known."""
        if line.startswith('{"progress"'):
            try:
                return str(json.loads(line)["progress"])[:200]
            except (ValueError, KeyError):
                return None
        low = line.lower()
        return next((meaning for words, meaning in self._stages if words in low), None)

    def _new(self) -> str:
        try:
            with self._log.open("rb") as stream:
                size = stream.seek(0, 2)
                stream.seek(max(min(self._at, size), size - MOST_BYTES))
                data = stream.read(MOST_BYTES)
                self._at = stream.tell()
        except (OSError, ValueError):
            return ""
        return data.decode("utf-8", errors="replace")


def shown(name: str, reader: Reader, seconds: int, left: float | None, earlier: int) -> str:
    """One line of progress. `seconds` have passed."""
    percent = f" {reader.percent} %" if reader.percent is not None else ""
    text = f"starting {name}: {reader.phase.name}{percent}, {seconds} s"
    before = f"{earlier} earlier start{'s' if earlier > 1 else ''}"
    if left is not None:
        return f"{text}, about {max(1, round(left))} s left by {before}"
    if earlier and seconds:
        return f"{text}, longer than {before}"
    return text

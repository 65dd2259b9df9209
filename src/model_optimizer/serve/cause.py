"""The line of a log that says why a server did not start. A start; `diagnose` knows whole signatures."""

import re
from collections.abc import Sequence

MOST = 3
LONGEST = 500
_RAISED = re.compile(r"(?:^|[\s\]])((?:\w+\.)*\w*(?:Error|Exception|Exit)): (\S.*)$")
_PREFIX = re.compile(r"^\(\w+ pid=\d+\)\s*")
_ECHOES = ("root cause above", "Failed core proc")


def raised(lines: Sequence[str]) -> tuple[str, ...]:
    """The exceptions that a log shows, each once, those that only point at another left out."""
    found: list[str] = []
    for line in lines:
        match = _RAISED.search(_PREFIX.sub("", line))
        if match is None or any(words in line for words in _ECHOES):
            continue
        text = f"{match[1]}: {match[2]}"[:LONGEST]
        if text not in found:
            found.append(text)
    return tuple(found[-MOST:])

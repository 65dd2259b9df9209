"""Orders version numbers of releases and drivers: 0.8.5 < 0.8.5.post1 < 0.10.0, 1.3.0rc2 < 1.3.0."""

import re
from functools import cache

from model_optimizer.core import UsageError

Key = tuple[tuple[int, ...], int, int]
_VERSION = re.compile(r"v?(\d{1,9}(?:\.\d{1,9}){0,5})(?:\.?(a|b|rc|post)(\d{1,9}))?(?:\+[\w.]+)?", re.ASCII)
_STAGES = {"a": -3, "b": -2, "rc": -1, "": 0, "post": 1}


@cache
def key(version: str) -> Key:
    """A sort key; 12 and 12.0.0 are equal. A local part (`+cu129`) is left out.

    UsageError when it is not a version.
    """
    found = _match(version)
    padded = tuple(int(part) for part in found[1].split(".")) + (0,) * 6
    return padded[:6], _STAGES[found[2] or ""], int(found[3] or 0)


def numbers(version: str) -> tuple[int, ...]:
    """The numbers as they were written: (12, 8) of 12.8, (12, 8, 0) of 12.8.0."""
    return tuple(int(part) for part in _match(version)[1].split("."))


def minor(version: str) -> tuple[int, int]:
    """(0, 25) of 0.25.1."""
    first = key(version)[0]
    return first[0], first[1]


def covers(first: str, last: str | None, wanted: str) -> bool:
    """True when `wanted` is the release `first`, an update of it (11.4.0.106 of 11.4), or lies in the
    series from `first` to `last`, updates of the last included."""
    if last is None:
        length = len(numbers(first))
        return key(wanted)[0][:length] == numbers(first) and key(wanted)[1:] >= key(first)[1:]
    length = len(numbers(last))
    at_end = key(wanted)[0][:length] == numbers(last) and not key(last)[1]
    return key(first) <= key(wanted) and (key(wanted) <= key(last) or at_end)


def _match(version: str) -> re.Match[str]:
    found = _VERSION.fullmatch(version.strip().lower())
    if not found:
        raise UsageError(f"`{version}` is not a version", hint=("write for example 0.25.1",))
    return found

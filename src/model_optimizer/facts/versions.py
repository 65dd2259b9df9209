"""Orders version numbers of releases and drivers: 0.8.5 < 0.8.5.post1 < 0.10.0, 1.3.0rc2 < 1.3.0."""

import re

from model_optimizer.core import UsageError

Key = tuple[tuple[int, ...], int, int]
_VERSION = re.compile(r"v?(\d{1,9}(?:\.\d{1,9})*)(?:\.?(a|b|rc|post)(\d{1,9}))?(?:\+[\w.]+)?", re.ASCII)
_STAGES = {"a": -3, "b": -2, "rc": -1, "": 0, "post": 1}


def key(version: str) -> Key:
    """A sort key. A local part (`+cu129`) is left out. UsageError when it is not a version."""
    found = _VERSION.fullmatch(version.strip().lower())
    if not found:
        raise UsageError(f"`{version}` is not a version", hint=("write for example 0.25.1",))
    numbers = [int(part) for part in found[1].split(".")]
    while len(numbers) > 1 and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers), _STAGES[found[2] or ""], int(found[3] or 0)


def minor(version: str) -> tuple[int, int]:
    """(0, 25) of 0.25.1."""
    numbers = (*key(version)[0], 0)
    return numbers[0], numbers[1]

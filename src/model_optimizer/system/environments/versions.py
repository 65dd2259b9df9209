"""Does an installed version satisfy `torch >=2.13,<3`? Just the rules that the essentials of a lock use."""

import re
from collections.abc import Mapping
from itertools import zip_longest

from model_optimizer.core import UsageError

_REQUIREMENT = re.compile(r"\s*([A-Za-z0-9][A-Za-z0-9._| -]*?)\s*([<>=!].*)?")
_CLAUSE = re.compile(r"(>=|<=|==|!=|<|>)\s*([0-9][0-9a-zA-Z.+-]*)\s*")


def canonical(name: str) -> str:
    """How the index compares names of distributions: `ONNX_ir` is `onnx-ir`."""
    return re.sub(r"[-_.]+", "-", name).lower()


def release(version: str) -> tuple[int, ...]:
    """The numbers of a version without epoch, suffix or local part: `2.13.0+cpu` is (2, 13, 0)."""
    found = re.match(r"(?:\d+!)?v?(\d+(?:\.\d+)*)", version)
    return tuple(int(part) for part in found[1].split(".")) if found else ()


def unmet(requirement: str, installed: Mapping[str, str]) -> str | None:
    """None when it is met, else why not: `torch is missing`, `torch is 2.9.1, not >=2.13`.

    `installed` maps canonical names to versions. `a | b >=1` is met by either.
    """
    found = _REQUIREMENT.fullmatch(requirement)
    if not found:
        raise UsageError(
            f"`{requirement}` is not a requirement", hint=("write for example `torch >=2.13,<3`",)
        )
    names = [canonical(name.strip()) for name in found[1].split("|")]
    present = next((name for name in names if name in installed), None)
    if present is None:
        return f"{' or '.join(names)} is missing"
    if all(_meets(installed[present], clause) for clause in (found[2] or "").split(",") if clause.strip()):
        return None
    return f"{present} is {installed[present]}, not {found[2]}"


def _meets(version: str, clause: str) -> bool:
    found = _CLAUSE.fullmatch(clause.strip())
    if not found:
        raise UsageError(f"`{clause}` is not a version clause", hint=("write for example `>=2.13`",))
    pairs = list(zip_longest(release(version), release(found[2]), fillvalue=0))
    ours, theirs = [a for a, _ in pairs], [b for _, b in pairs]
    match found[1]:
        case ">=":
            return ours >= theirs
        case "<=":
            return ours <= theirs
        case "==":
            return ours == theirs
        case "!=":
            return ours != theirs
        case "<":
            return ours < theirs
        case _:
            return ours > theirs

"""Finds the release that is meant among those that are known; engines share the rule."""

from collections.abc import Iterable, Mapping
from pathlib import Path

from model_optimizer.core import UsageError
from model_optimizer.facts import read
from model_optimizer.facts.versions import key, minor

_FOLDER = read.ROOT / "compatibility"


def paths(engine: str) -> dict[str, Path]:
    """The file of each known release of an engine, oldest first; opens none of them."""
    found = {path.stem: path for path in (_FOLDER / engine).glob("*.toml")}
    return dict(sorted(found.items(), key=lambda item: key(item[0])))


def nearest(wanted: str, known: Iterable[str]) -> str | None:
    """The known version to take for a wanted one: itself, else the newest before it in the same minor
    version, else the oldest after it there, else the newest before it at all.

    None when it is older than every known one.
    """
    ordered = sorted(known, key=key)
    equal = [v for v in ordered if key(v) == key(wanted)]
    before = [v for v in ordered if key(v) < key(wanted)]
    same = [v for v in ordered if minor(v) == minor(wanted)]
    if equal:
        return equal[0]
    if same:
        return max((v for v in same if v in before), key=key, default=same[0])
    return before[-1] if before else None


def stand_in(wanted: str, known: Iterable[str]) -> str | None:
    """The known version that stands for an unknown one; None for a known one, and for one before all."""
    found = nearest(wanted, known)
    return None if found is None or key(found) == key(wanted) else found


def choose(engine: str, wanted: str, known: Mapping[str, Path]) -> Path:
    """The file of the nearest known release. UsageError lists the known ones when there is none."""
    found = nearest(wanted, known)
    if found is None:
        raise UsageError(f"there is no {engine} {wanted} in the facts", hint=(f"known: {', '.join(known)}",))
    return known[found]

"""A plug-in is a module. Dropping a file into the folder is the whole registration.

Outside packages register a module under the entry point group that is the package's full name, for
example `model_optimizer.schemes`.
"""

from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from pkgutil import iter_modules
from types import ModuleType
from typing import Any

from .errors import UsageError


def canonical(name: str) -> str:
    """`int4-rtn` and `int4_rtn` are the same plug-in; inside the product the underscore is used."""
    return name.strip().lower().replace("-", "_")


@cache
def _outside(package: str) -> tuple[EntryPoint, ...]:
    """What outside packages register; reading their metadata takes milliseconds, so it is done once."""
    return tuple(entry_points(group=package))


@cache
def names(package: str) -> tuple[str, ...]:
    """The names of all plug-ins of a package, sorted; nothing is imported but the package itself."""
    folder = import_module(package).__path__
    here = {info.name for info in iter_modules(folder) if not info.name.startswith("_")}
    return tuple(sorted(here | {canonical(e.name) for e in _outside(package)}))


@cache
def load(package: str, name: str) -> ModuleType:
    """Import one plug-in by name. UsageError lists the known names when there is no such one."""
    wanted = canonical(name)
    if wanted not in names(package):
        kind = package.rpartition(".")[2].rstrip("s")
        raise UsageError(f"there is no {kind} `{name}`", hint=(f"known: {', '.join(names(package))}",))
    for entry in _outside(package):
        if canonical(entry.name) == wanted:
            return entry.load()
    return import_module(f"{package}.{wanted}")


def load_all(package: str) -> dict[str, Any]:
    """Every plug-in of a package by name, in the order of names. What each offers is in protocols.py."""
    return {name: load(package, name) for name in names(package)}

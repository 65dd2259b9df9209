"""Which Python runs the work of an environment, and what it has installed."""

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Literal

import msgspec

from model_optimizer.core import HostError, ToolError, UsageError
from model_optimizer.core.plugins import canonical
from model_optimizer.system import files, processes

from . import recipe as recipes
from . import versions
from .recipe import Recipe

MARKER = "mopt-environment.json"
_ASK = """
import importlib.metadata as m, json, platform, sys
print(json.dumps({"python": platform.python_version(), "executable": sys.executable,
    "packages": {d.metadata["Name"]: d.version for d in m.distributions() if d.metadata["Name"]}}))
"""

Origin = Literal["named", "made", "current"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Interpreter:
    """`origin`: the user named it, it was made from a lock, or it is the one that runs mopt."""

    path: Path
    origin: Origin


@dataclass(frozen=True, slots=True, kw_only=True)
class Installed:
    """What an interpreter says of itself; `packages` maps canonical names to versions."""

    python: str
    executable: str
    packages: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Marker:
    """Written last into a finished environment: what it was made from."""

    name: str
    lock_digest: str
    python: str
    made_at: str
    origin: str
    disk_bytes: int
    seconds: float
    packages: tuple[str, ...] = field(default=())


def folder() -> Path:
    """Where environments are kept: MOPT_ENVIRONMENTS, else below the user's data."""
    named = os.environ.get("MOPT_ENVIRONMENTS")
    return files.expanded(named).absolute() if named else files.data_home() / "environments"


def python_of(environment: Path) -> Path:
    return environment / "bin" / "python"


def marker(environment: Path) -> Marker | None:
    """None when the environment was never finished, or when its Python is gone."""
    try:
        found = msgspec.json.decode((environment / MARKER).read_bytes(), type=Marker)
    except (OSError, msgspec.MsgspecError):
        return None
    return found if python_of(environment).exists() else None


def interpreter(environment: str, *, python: Path | None = None) -> Interpreter:
    """The user's (`python`, or the variable MOPT_PYTHON_<NAME>), else the made one, else the current one.

    Packages are compared with the essential ones of the lock, by their metadata. Raises HostError when
    the named one does not fit, or when there is none.
    """
    if canonical(environment) not in recipes.names():
        return _without_recipe(canonical(environment), python)
    recipe = recipes.load(environment)
    if named := python or _from_variable(recipe.name):
        return Interpreter(path=_named(recipe, named), origin="named")
    made = folder() / recipe.name
    found = marker(made)
    if found and (found.lock_digest == recipe.digest or not misfits(recipe, python_of(made))):
        return Interpreter(path=python_of(made), origin="made")
    if not misfits(recipe, Path(sys.executable)):
        return Interpreter(path=Path(sys.executable), origin="current")
    shown = recipe.name.replace("_", "-")
    raise HostError(
        f"the environment `{shown}` is {'from another version' if found else 'not there'}",
        cause=(f"needed for: {recipe.about.title}",),
        hint=(
            f"make it: `mopt env create {shown}`",
            f"or name a Python that has these packages: MOPT_PYTHON_{recipe.name.upper()}=/path/to/python",
        ),
        reference="environment-missing",
    )


def _without_recipe(name: str, python: Path | None) -> Interpreter:
    """An engine that is installed in ways of its own: only the user knows which Python has it."""
    named = python or _from_variable(name)
    if named is None:
        raise HostError(
            f"which Python has `{name}` is not known",
            cause=(f"there is no lock that installs `{name}`: its makers publish it as an image",),
            hint=(
                f"name it with --python, or MOPT_PYTHON_{name.upper()}=/path/to/python",
                "or run the image: `mopt serve PLAN --container`",
            ),
            reference="environment-missing",
        )
    return Interpreter(path=_existing(named), origin="named")


def misfits(recipe: Recipe, python: Path) -> tuple[str, ...]:
    """Why an interpreter cannot do this environment's work; () when it can. Raises HostError."""
    packages = installed(python).packages
    return tuple(why for need in recipe.about.essential if (why := versions.unmet(need, packages)))


@cache
def installed(python: Path) -> Installed:
    """Ask an interpreter what it is, without importing its packages. Raises HostError."""
    environ = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    try:
        ended = processes.run([python, "-P", "-c", _ASK], timeout_s=60, env=environ)
    except ToolError as error:
        raise _unusable(python, error.message) from error
    try:
        found = msgspec.json.decode(ended.stdout, type=Installed)
    except msgspec.MsgspecError as error:
        raise _unusable(python, ended.stderr.strip()[-300:] or str(error)) from error
    packages = {versions.canonical(name): version for name, version in found.packages.items()}
    return Installed(python=found.python, executable=found.executable, packages=packages)


def here() -> str:
    """This machine's platform as locks name it: `linux-x86_64`."""
    machine = os.uname().machine.lower()
    names = {"amd64": "x86_64", "arm64": "aarch64"}
    return f"{sys.platform}-{names.get(machine, machine)}"


def _unusable(python: Path, why: str) -> HostError:
    return HostError(
        f"`{python}` is not a Python that mopt can use",
        cause=(why,),
        hint=("name the executable of a Python 3.11 or newer",),
    )


def _from_variable(name: str) -> Path | None:
    found = os.environ.get(f"MOPT_PYTHON_{canonical(name).upper()}")
    return files.expanded(found) if found else None


def _existing(python: Path) -> Path:
    path = files.expanded(python).absolute()  # never resolved: the link makes it a virtual environment
    if path.is_dir():
        path = python_of(path)
    if not path.is_file():
        raise UsageError(f"there is no Python at `{python}`")
    return path


def _named(recipe: Recipe, python: Path) -> Path:
    path = _existing(python)
    if why := misfits(recipe, path):
        shown = recipe.name.replace("_", "-")
        raise HostError(
            f"`{python}` does not fit the environment `{shown}`",
            cause=why,
            hint=(f"install these there, or make the environment: `mopt env create {shown}`",),
            reference="environment-misfit",
        )
    return path

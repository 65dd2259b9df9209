"""The commands of pip that make an environment, and what its failures mean.

pip's own configuration (pip.conf, PIP_INDEX_URL, ...) is honoured: a company's mirror works as it does
for any other install.
"""

import importlib.metadata
import os
import re
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

from model_optimizer.core import HostError, MoptError, ToolError, UsageError
from model_optimizer.system import processes

from . import versions
from .recipe import Recipe

# Settings that would put packages elsewhere, or change what a pin means.
_DROPPED = (
    "PIP_TARGET", "PIP_PREFIX", "PIP_ROOT", "PIP_USER", "PIP_REQUIREMENT", "PIP_EDITABLE", "PIP_NO_DEPS",
    "PIP_QUIET", "PIP_VERBOSE", "PIP_LOG", "PIP_REPORT", "PIP_DRY_RUN", "PIP_PYTHON", "PIP_PLATFORM",
    "PIP_PYTHON_VERSION", "PIP_ABI", "PIP_IMPLEMENTATION", "PIP_PROGRESS_BAR", "PIP_DEST", "PIP_PRE",
)  # fmt: skip
_ALWAYS = ("--no-deps", "--only-binary=:all:", "--no-input", "--progress-bar=off", "--no-color",
           "--disable-pip-version-check")  # fmt: skip


class Index:
    """Where packages come from: pip's configuration, changed by what the user gave as `--index`.

    A name that the recipe knows (`torch-cpu`) is asked beside the configured index, an address instead
    of it. An address may hold a password: it is handed over in the environment, never on a command line.
    """

    def __init__(self, recipe: Recipe, given: Iterable[str] = ()) -> None:
        wanted = [*given] or os.environ.get("MOPT_INDEX", "").split()
        known = recipe.about.indexes
        addresses = [text for text in wanted if re.match(r"(https?|file)://", text)]
        if unknown := [text for text in wanted if text not in known and text not in addresses]:
            raise UsageError(
                f"there is no index `{unknown[0]}`",
                hint=(f"give an address, or one of: {', '.join(sorted(known)) or 'none'}",),
            )
        if len(addresses) > 1:
            raise UsageError("only one index address can be used", hint=("pip.conf can hold further ones",))
        self.arguments = tuple(f"--extra-index-url={known[text]}" for text in wanted if text in known)
        self.address = addresses[0] if addresses else None

    def environ(self) -> dict[str, str]:
        found = {k: v for k, v in os.environ.items() if k not in _DROPPED and not k.startswith("PYTHON")}
        return {**found, **({"PIP_INDEX_URL": self.address} if self.address else {})}

    def shown(self) -> str:
        """For a log or a screen: without user and password."""
        if self.address:
            return re.sub(r"//[^/@]*@", "//", self.address)
        return "pip's configuration" + "".join(f" and {a.partition('=')[2]}" for a in self.arguments)


class FolderIndex(Index):
    """Packages come from a folder of wheels and from nowhere else, whatever pip is configured with."""

    def __init__(self, wheels: Path) -> None:
        self.arguments = ("--no-index", f"--find-links={wheels}")
        self.address = None
        self._wheels = wheels

    def environ(self) -> dict[str, str]:
        found = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "PIP_"))}
        return {**found, "PIP_CONFIG_FILE": os.devnull}

    def shown(self) -> str:
        return f"the bundle in {self._wheels.parent}"


def venv(base: Path, place: Path) -> tuple[str, ...]:
    """The command that makes a virtual environment; pip is put in only if there is none to borrow."""
    borrowed = ("--without-pip",) if _borrowed() else ()
    return (str(base), "-I", "-m", "venv", *borrowed, str(place))


def install(python: Path, lock: Path, index: Index) -> tuple[str, ...]:
    """The command that installs a lock."""
    caller = (*_borrowed(), "--python", str(python)) if _borrowed() else (str(python), "-I", "-m", "pip")
    return (*caller, "install", "--no-compile", *_ALWAYS, *index.arguments, "-r", str(lock))


def compile_all(python: Path, environment: Path) -> tuple[str, ...]:
    """The command that compiles what was installed, on all cores."""
    return (str(python), "-I", "-m", "compileall", "-q", "-j", "0", str(environment / "lib"))


def download(
    python: Path, packages: Iterable[str], index: Index, out: Path, target: Iterable[str]
) -> tuple[str, ...]:
    """The command that downloads wheels for another machine."""
    head = (str(python), "-I", "-m", "pip", "download", *_ALWAYS)
    return (*head, *index.arguments, *target, "-d", str(out), *packages)


def call(command: tuple[str, ...], index: Index, log: Path, on_line: Callable[[str], None]) -> None:
    """Run one of these commands; its output goes to `log`. Raises HostError and ToolError."""
    begun = log.stat().st_size if log.exists() else 0

    def take(line: str) -> bool:
        on_line(line)
        return False

    code = processes.follow(command, take, log=log, env=index.environ(), merged=True)
    if code != 0:
        raise explain(processes.tail(log, 200, from_byte=begun), code, log, index)


def _borrowed() -> tuple[str, ...]:
    """The pip of the interpreter that runs mopt, if it can install for another one (since 22.3)."""
    try:
        version = importlib.metadata.version("pip")
    except importlib.metadata.PackageNotFoundError:
        return ()
    return (sys.executable, "-I", "-m", "pip") if versions.release(version) >= (22, 3) else ()


def explain(lines: tuple[str, ...], code: int, log: Path, index: Index) -> MoptError:
    """Why pip failed, from what it said."""
    errors = [line.strip() for line in lines if line.lstrip().startswith("ERROR:")]
    causes = tuple(dict.fromkeys(error.removeprefix("ERROR:").strip()[:400] for error in errors))[-4:]
    text = "\n".join(lines)
    whole = f"the whole log: {log}"
    if "No space left on device" in text or "Disk quota exceeded" in text:
        return HostError("the disk is full", cause=causes, hint=("make room", whole), reference="disk-full")
    if "NewConnectionError" in text or "ProxyError" in text or "Read timed out" in text:
        return HostError(
            "the package index cannot be reached",
            cause=causes or lines[-2:],
            hint=(
                "name a mirror with `--index URL`, or install from a bundle with `--from DIR`",
                whole,
            ),
            reference="index-unreachable",
        )
    if "No matching distribution found" in text or "Could not find a version" in text:
        return HostError(
            "the lock cannot be met here",
            cause=causes,
            hint=(f"asked: {index.shown()}", "another index can be named with `--index`", whole),
            reference="lock-not-met",
        )
    return ToolError(
        f"pip failed ({processes.how_it_ended(code)})", cause=causes or lines[-8:], hint=(whole,)
    )

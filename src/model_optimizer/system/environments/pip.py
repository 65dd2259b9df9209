"""The commands of pip that make an environment, and what its failures mean.

pip's own configuration (pip.conf, PIP_INDEX_URL, ...) is honoured: a company's mirror works as it does
for any other install.
"""

import importlib.metadata
import json
import os
import re
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

from model_optimizer.core import HostError, MoptError, ToolError, UsageError
from model_optimizer.system import files, processes

from . import versions
from .recipe import NamedIndex, Recipe

# Settings that would put packages elsewhere, or change what a pin means.
_DROPPED = (
    "PIP_TARGET", "PIP_PREFIX", "PIP_ROOT", "PIP_USER", "PIP_REQUIREMENT", "PIP_EDITABLE", "PIP_NO_DEPS",
    "PIP_QUIET", "PIP_VERBOSE", "PIP_LOG", "PIP_REPORT", "PIP_DRY_RUN", "PIP_PYTHON", "PIP_PLATFORM",
    "PIP_PYTHON_VERSION", "PIP_ABI", "PIP_IMPLEMENTATION", "PIP_PROGRESS_BAR", "PIP_DEST", "PIP_PRE",
)  # fmt: skip
_ALWAYS = ("--no-deps", "--only-binary=:all:", "--no-input", "--progress-bar=off", "--no-color",
           "--disable-pip-version-check")  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Where some pins come from: pip's options, and the pins; () is all that are left."""

    options: tuple[str, ...]
    pins: tuple[str, ...] = ()


class Index:
    """Where packages come from: pip's configuration, changed by what the user gave as `--index`.

    A name that the recipe knows (`torch-cpu`) is asked for its own packages and for no others, so that it
    can neither slow down nor replace the rest. An address is asked instead of the configured index; it may
    hold a password, so it is handed over in the environment, never on a command line.
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
        self.address = addresses[0] if addresses else None
        named = [known[text] for text in wanted if text in known]
        self.sources = (*(_source(index, recipe) for index in named), Source(options=()))

    def environ(self) -> dict[str, str]:
        found = {k: v for k, v in os.environ.items() if k not in _DROPPED and not k.startswith("PYTHON")}
        return {**found, **({"PIP_INDEX_URL": self.address} if self.address else {})}

    def prefix(self) -> tuple[str, ...]:
        """What a printed command has to begin with."""
        return ("env", f"PIP_INDEX_URL={self.shown()}") if self.address else ()

    def shown(self) -> str:
        """For a log or a screen: without user and password."""
        if self.address:
            return re.sub(r"//[^/@]*@", "//", self.address)
        named = [option.partition("=")[2] for source in self.sources for option in source.options]
        return " and ".join(["what pip is configured with", *named])


class FolderIndex(Index):
    """Packages come from a folder of wheels and from nowhere else, whatever pip is configured with."""

    def __init__(self, wheels: Path) -> None:
        self.address = None
        self.sources = (Source(options=("--no-index", f"--find-links={wheels}")),)

    def environ(self) -> dict[str, str]:
        found = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "PIP_"))}
        return {**found, "PIP_CONFIG_FILE": os.devnull}


def venv(base: Path, place: Path) -> tuple[str, ...]:
    """The command that makes a virtual environment; pip is put in only if there is none to borrow."""
    borrowed = ("--without-pip",) if _borrowed() else ()
    return (str(base), "-I", "-m", "venv", *borrowed, str(place))


def install(python: Path, lock: Path, index: Index) -> tuple[tuple[str, ...], ...]:
    """The commands that install a lock: first what comes from named indexes, then all that is missing."""
    head = (*_for(python), "install", "--no-compile", *_ALWAYS)
    return tuple((*head, *source.options, *(source.pins or ("-r", str(lock)))) for source in index.sources)


def compile_all(python: Path, environment: Path) -> tuple[str, ...]:
    """The command that compiles what was installed, on all cores."""
    return (str(python), "-I", "-m", "compileall", "-q", "-j", "0", str(environment / "lib"))


def download(
    python: Path, pins: Iterable[str], source: Source, out: Path, target: Iterable[str]
) -> tuple[str, ...]:
    """The command that downloads wheels for another machine."""
    return (
        str(python), "-I", "-m", "pip", "download", *_ALWAYS, *source.options, *target, "-d", str(out), *pins,
    )  # fmt: skip


def require_builds(
    recipe: Recipe, python: Path | None, index: Index, log: Path, target: Iterable[str] = ()
) -> None:
    """Refuse, before anything large is downloaded, a build that cannot work. Raises HostError.

    `python` is the interpreter to install for, or None with `target` (pip's options for another machine).
    """
    for package, suffix in recipe.about.builds.items():
        pin = recipe.pin_of(package)
        source = next((s for s in index.sources if pin in s.pins), index.sources[-1])
        with files.temporary() as place:
            report = place / "report.json"
            head = _for(python) if python else (sys.executable, "-I", "-m", "pip")
            where = () if python else (f"--target={place}", *target)
            command = (
                *head, "install", "--dry-run", "--ignore-installed", f"--report={report}", *_ALWAYS,
                *source.options, *where, pin,
            )  # fmt: skip
            call(command, index, log, lambda _: None)
            url = json.loads(report.read_text())["install"][0]["download_info"]["url"]
        wheel = unquote(url.rpartition("/")[2])
        if f"+{suffix}" not in wheel.split("-")[1]:
            names = [name for name, known in recipe.about.indexes.items() if package in known.packages]
            raise HostError(
                f"this lock needs the `{suffix}` build of {package}, the index has another one",
                cause=(f"{wheel}", f"asked: {index.shown()}"),
                hint=tuple(f"take it from the index that has it: `--index {name}`" for name in names),
                reference="wrong-build",
            )


def call(command: tuple[str, ...], index: Index, log: Path, on_line: Callable[[str], None]) -> None:
    """Run one of these commands; its output goes to `log`. Raises HostError and ToolError."""
    begun = log.stat().st_size if log.exists() else 0

    def take(line: str) -> bool:
        on_line(line)
        return False

    code = processes.follow(command, take, log=log, env=index.environ(), merged=True)
    if code != 0:
        raise explain(processes.tail(log, 200, from_byte=begun), code, log, index)


def _source(index: NamedIndex, recipe: Recipe) -> Source:
    pins = tuple(recipe.pin_of(name) for name in index.packages)
    return Source(options=(f"--index-url={index.url}",), pins=pins)


def _for(python: Path) -> tuple[str, ...]:
    """pip that installs for an interpreter."""
    return (*_borrowed(), "--python", str(python)) if _borrowed() else (str(python), "-I", "-m", "pip")


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
    text = "\n".join(lines)  # pip's errors name the last package; its warnings name the reason
    whole = f"the whole log: {log}"
    if "No space left on device" in text or "Disk quota exceeded" in text:
        return HostError("the disk is full", cause=causes, hint=("make room", whole), reference="disk-full")
    if re.search("NewConnectionError|NameResolutionError|ProxyError|Read timed out|SSLError", text):
        return HostError(
            "the package index cannot be reached",
            cause=causes or lines[-2:],
            hint=(
                f"asked: {index.shown()}",
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

"""What an environment is made of: a folder in locks/ with `about.toml` and `packages.lock`.

Dropping a folder there adds an environment. One of the same name in the `locks` folder of the user's
data (see system.files.data_home) is used instead of the one that ships.
"""

import hashlib
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from model_optimizer.core import Needs, UsageError, units
from model_optimizer.core.plugins import canonical
from model_optimizer.system import files

from . import versions

SHIPPED = Path(__file__).parents[1] / "locks"
_NAME = re.compile(r"[a-z][a-z0-9_]*")
_PIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*==[0-9][A-Za-z0-9.!]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Alias:
    """A distribution that is nothing but metadata: tools that ask for `name` find `version`."""

    name: str
    version: str
    because: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedIndex:
    """A public index that has another build of some packages; only these are asked of it."""

    url: str
    packages: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """As written in about.toml: what it downloads, writes, and holds in RAM while it is made."""

    download: str
    disk: str
    memory: str


@dataclass(frozen=True, slots=True, kw_only=True)
class About:
    """The content of about.toml. `builds` maps a package to the local suffix that its wheel must have."""

    title: str
    python: tuple[str, ...]
    platforms: tuple[str, ...]
    essential: tuple[str, ...]
    needs: Sizes
    imports: tuple[str, ...] = ()
    builds: Mapping[str, str] = field(default_factory=dict[str, str])
    indexes: Mapping[str, NamedIndex] = field(default_factory=dict[str, NamedIndex])
    variables: Mapping[str, str] = field(default_factory=dict[str, str])
    aliases: tuple[Alias, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """One environment. `packages` are exact pins without a local suffix, `digest` names what it installs."""

    name: str
    about: About
    packages: tuple[str, ...]
    lock: Path
    digest: str

    @property
    def needs(self) -> Needs:
        sizes = self.about.needs
        return Needs(
            download_bytes=units.parse_bytes(sizes.download),
            disk_bytes=units.parse_bytes(sizes.disk),
            memory_bytes=units.parse_bytes(sizes.memory),
        )

    @property
    def pins(self) -> dict[str, str]:
        """Canonical name to version."""
        pairs = (package.split("==", 1) for package in self.packages)
        return {versions.canonical(name): version for name, version in pairs}

    def pin_of(self, package: str) -> str:
        """The pin of a package as the lock spells it. Raises UsageError."""
        for pin in self.packages:
            if versions.canonical(pin.partition("==")[0]) == versions.canonical(package):
                return pin
        raise UsageError(f"about.toml of `{self.name}` speaks of `{package}`, which is not in its lock")


def names() -> tuple[str, ...]:
    """All environments that can be made, sorted."""
    return tuple(sorted({folder.name for folder in _folders()}))


def load(name: str) -> Recipe:
    """UsageError when there is none of that name, or when its files are not valid."""
    wanted = canonical(name)
    found = {folder.name: folder for folder in _folders()}
    if wanted not in found:
        raise UsageError(f"there is no environment `{name}`", hint=(f"known: {', '.join(sorted(found))}",))
    return read(found[wanted])


def read(folder: Path) -> Recipe:
    """The recipe in a folder. Raises UsageError."""
    try:
        text = (folder / "about.toml").read_text(encoding="utf-8")
        about = msgspec.convert(tomllib.loads(text), type=About)
        lock = (folder / "packages.lock").read_text(encoding="utf-8")
    except (OSError, ValueError, msgspec.MsgspecError) as error:
        raise UsageError(f"`{folder}` does not describe an environment", cause=(str(error),)) from error
    packages = tuple(_pin(line, folder) for line in _lines(lock))
    aliases = [f"{alias.name}=={alias.version}" for alias in about.aliases]
    content = "\n".join(sorted([*packages, *(f"alias {alias}" for alias in aliases)]))
    return Recipe(
        name=folder.name,
        about=about,
        packages=packages,
        lock=folder / "packages.lock",
        digest=f"sha256:{hashlib.sha256(content.encode()).hexdigest()}",
    )


def _folders() -> Iterator[Path]:
    """Shipped ones first: a later one of the same name is the user's and wins."""
    for place in (SHIPPED, files.data_home() / "locks"):
        if place.is_dir():
            yield from (p for p in sorted(place.iterdir()) if _NAME.fullmatch(p.name) and p.is_dir())


def _lines(lock: str) -> Iterator[str]:
    for line in lock.splitlines():
        if text := line.partition("#")[0].strip():
            yield text


def _pin(line: str, folder: Path) -> str:
    """Pins only: no options, no addresses, no markers, so that a lock means the same on every machine."""
    if not _PIN.fullmatch(line):
        raise UsageError(
            f"`{line}` in the lock of `{folder.name}` is not a pin",
            cause=(f"{folder / 'packages.lock'}",),
            hint=("write `name==version`, without a local suffix such as `+cpu`",),
        )
    return line

"""Which release of an engine serves which architecture, read from the engines' own registries.

One JSON file a release in the folder of the engine; `tools/architectures_from_vllm.py` and
`tools/architectures_from_sglang.py` make them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Literal

from model_optimizer.core import UsageError
from model_optimizer.facts import read
from model_optimizer.facts.fact import Fact
from model_optimizer.facts.versions import key

Serves = Literal["generate", "multimodal", "embed", "rerank", "pooling", "draft"]

_FOLDER = Path(__file__).parent


@dataclass(frozen=True, slots=True, kw_only=True)
class Architectures(Fact):
    """The registry of one release.

    `package` and `package_version` are what was read, `date` is when its files were built. `tasks`
    lists the architectures of each kind: `multimodal` generates from more than text, `rerank` has a
    sequence classification head (one label scores pairs), `pooling` covers reward, token classification
    and late interaction, `draft` only helps another model decode. `general` are architectures that run
    through the engine's Transformers backend, `removed` those that older releases had (and the last
    one that had it), `plugins` those that need a package of their own.
    """

    engine: str
    version: str
    package: str
    package_version: str
    date: str
    tasks: Mapping[Serves, tuple[str, ...]]
    general: tuple[str, ...] = ()
    removed: Mapping[str, str] = field(default_factory=dict[str, str])
    plugins: Mapping[str, str] = field(default_factory=dict[str, str])

    def serves(self, architecture: str) -> tuple[Serves, ...]:
        """The kinds of task; () when this release does not serve the architecture."""
        return tuple(task for task, names in self.tasks.items() if architecture in names)


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """One release that serves an architecture. `general` is True for the Transformers backend."""

    engine: str
    version: str
    tasks: tuple[Serves, ...]
    general: bool = False


def engines() -> tuple[str, ...]:
    """The engines whose registries were read."""
    return tuple(sorted(p.name for p in _FOLDER.iterdir() if p.is_dir() and any(p.glob("*.json"))))


def versions(engine: str = "vllm") -> tuple[str, ...]:
    """The releases whose registry was read, oldest first; opens no file."""
    return tuple(_paths(engine))


@cache
def release(version: str, *, engine: str = "vllm") -> Architectures:
    """The registry of exactly this release. UsageError lists those that were read."""
    paths = _paths(engine)
    if version not in paths:
        raise UsageError(
            f"the architectures of {engine} {version} were not read", hint=(f"known: {', '.join(paths)}",)
        )
    return read.json(paths[version], Architectures)


def releases_of(architecture: str, *, engine: str = "vllm") -> tuple[Served, ...]:
    """Every release that serves an architecture, oldest first; () when none does."""
    found: list[Served] = []
    for path in _paths(engine).values():
        registry = read.json(path, Architectures)
        tasks = registry.serves(architecture)
        if tasks:
            general = architecture in registry.general
            found.append(Served(engine=engine, version=registry.version, tasks=tasks, general=general))
    return tuple(found)


@cache
def _paths(engine: str) -> dict[str, Path]:
    if engine not in engines():
        raise UsageError(
            f"the architectures of `{engine}` were not read", hint=(f"known: {', '.join(engines())}",)
        )
    found = {path.stem: path for path in (_FOLDER / engine).glob("*.json")}
    return dict(sorted(found.items(), key=lambda item: key(item[0])))

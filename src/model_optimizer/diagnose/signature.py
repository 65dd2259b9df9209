"""Known failures as data: one TOML file each, found by scanning the folder.

The first paragraph of a file is what matching needs and is read for every log; the rest (cause, fix, source)
is read only for what was recognised, which keeps the start short.
"""

import json
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from importlib.metadata import entry_points
from pathlib import Path
from typing import Literal, TypeVar

import msgspec

from model_optimizer.core.diagnosis import Confidence, Kind

T = TypeVar("T")

FOLDER = Path(__file__).parent / "signatures"
GROUP = "model_optimizer.diagnose.signatures"
"""Entry points of outside packages: each names a package whose folder holds more files."""

LAYERS = (
    "hardware", "driver", "wsl", "container", "host", "cuda", "nccl", "python-packages", "hub", "model",
    "onnx", "tensorrt", "vllm", "llama.cpp", "serving", "kubernetes", "observability",
)  # fmt: skip
"""From the bottom up; a lower layer can explain a higher one."""

Weight = Literal["specific", "general", "symptom"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """How a failure is recognised.

    Any of `fragments` (case does not matter) on a line makes it a candidate; `regex` then decides and names
    values. `requires`: one of these must be somewhere in the log. `near`: one of these must stand in the 40
    lines before. `not_when`: words that show that the usual answer was tried already; in both lists a name
    of tried.TRIED stands for all phrases of that kind. `unless_same`: two values that, when equal, speak
    against it. `beats`: failures that this one explains. `weight` is `symptom` for a message that many
    causes share, `general` for one that a more specific one outdoes. `confidence` is the most that a match
    can give (else: by weight). `silent`: only looked for in the last lines and the stack of a program that
    says nothing, with `process` as its state.
    """

    layer: str
    kind: Kind
    fragments: tuple[str, ...]
    regex: str | None = None
    requires: tuple[str, ...] = ()
    not_when: tuple[str, ...] = ()
    near: tuple[str, ...] = ()
    unless_same: tuple[str, ...] = ()
    beats: tuple[str, ...] = ()
    weight: Weight = "specific"
    confidence: Confidence | None = None
    silent: bool = False
    process: Literal["busy", "idle"] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HostRules:
    """Names of facts about a host (correlate.py) that speak for and against the cause."""

    supports: tuple[str, ...] = ()
    contradicts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Body:
    """What is told when it is recognised.

    `said` is a sentence with {values}, shown when all of them were found. `fix_on` holds steps for one
    platform (ubuntu, debian, rhel, wsl2, windows). `otherwise` is what to look at when the usual fix was
    tried. `evidence` is how the failure became known: a thread or page or source that was read, a run of
    our own, or general knowledge, which is the weakest.
    """

    cause: str
    fix: tuple[str, ...]
    example: str
    source: tuple[str, ...]
    evidence: Literal["thread", "source", "docs", "run", "general"]
    said: str | None = None
    fix_on: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    otherwise: tuple[str, ...] = ()
    probe: str | None = None
    risk: str | None = None
    host: HostRules = field(default_factory=HostRules)


class Signature:
    """One file. `body` is read when it is first asked for."""

    def __init__(self, path: Path) -> None:
        self.id = path.stem
        self._text = path.read_text("utf-8")
        self.head = _convert(_parse(self._text.partition("\n\n")[0], path), Head, path)
        self._path = path

    @cached_property
    def body(self) -> Body:
        return _convert(_parse(self._text, self._path), Body, self._path)

    def needles(self) -> list[bytes]:
        """The fragments as they can stand in a log, in lower case: plain, and inside a JSON string."""
        return needles(self.head.fragments)


def needles(fragments: Sequence[str]) -> list[bytes]:
    """Lower case bytes of the fragments, and of their form inside a JSON string where that differs."""
    found: dict[bytes, None] = {}
    for fragment in fragments:
        found[fragment.lower().encode()] = None
        found[json.dumps(fragment.lower(), ensure_ascii=False)[1:-1].encode()] = None
    return list(found)


def folders() -> list[Path]:
    """The folders that hold signatures: ours, and those of outside packages."""
    found = [FOLDER]
    for entry in entry_points(group=GROUP):
        found += [Path(place) for place in entry.load().__path__]
    return found


@cache
def load(places: tuple[Path, ...] | None = None) -> tuple[Signature, ...]:
    """Every signature, by id. A broken file is a bug: its error names it."""
    paths = [path for place in places or folders() for path in place.glob("*.toml")]
    return tuple(Signature(path) for path in sorted(paths, key=lambda p: p.stem))


def _parse(text: str, path: Path) -> object:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"the signature {path.name} is broken: {error}") from error


def _convert(raw: object, kind: type[T], path: Path) -> T:
    try:
        return msgspec.convert(raw, type=kind)
    except msgspec.ValidationError as error:
        raise ValueError(f"the signature {path.name} is broken: {error}") from error

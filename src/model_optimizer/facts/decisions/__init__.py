"""What a decision rests on and nobody derives: the tree between engines, orders, margins, engines' outlines.

`tree.toml` is the decision tree, `quality.toml` the order of schemes, `rules.toml` the numbers, `engines/`
what is known of engines that have no folder of releases of their own.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import TypeVar

from model_optimizer.core import UsageError
from model_optimizer.facts import read
from model_optimizer.facts.fact import Fact
from model_optimizer.facts.versions import key

_FOLDER = read.ROOT / "decisions"
R = TypeVar("R", "CudaOf", "Serves")


# Words of the situation that are 1 or 0.
YES_OR_NO = frozenset({"decoder", "fits", "geforce"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Node(Fact):
    """One question: is the word `ask` of the situation equal to `is`, or at least `at_least`?"""

    id: str
    ask: str
    equals: str | None = None
    at_least: float | None = None
    yes: str
    no: str
    because: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaf(Fact):
    """Engines in the order in which they are preferred."""

    id: str
    order: tuple[str, ...]
    because: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Quality(Fact):
    """`loss` orders schemes; it is no percentage."""

    name: str
    loss: int
    because: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule(Fact):
    """One number and what it is for."""

    id: str
    value: float
    because: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Speculation(Fact):
    """vLLM's `word` for a way to draft tokens, and the first release that takes it."""

    method: str
    word: str
    since: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Api(Fact):
    """What the server of an engine `offers`: openai, streaming."""

    engine: str
    offers: tuple[str, ...]
    because: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Rung(Fact):
    """A GPU that may be looked at instead, and in which numbers it is usually had."""

    gpu: str
    counts: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CudaOf:
    """From release `since` on: the CUDA of the image, and of its variant when there is one."""

    since: str
    cuda: str
    variant: str | None = None
    variant_cuda: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Serves:
    """From release `since` on: architectures (of config.json), or model types for llama.cpp."""

    since: str
    architectures: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineOutline(Fact):
    """An engine as a plan needs it. `flags` has the first release known to take each option.

    `memory` names the rules that stand in for its own accounting. `{version}` stands in the image.
    """

    engine: str
    memory: str
    minimum_compute_capability: tuple[int, int]
    image: str
    image_other: str | None = None
    image_cpu: str | None = None
    entrypoint: tuple[str, ...]
    release: tuple[CudaOf, ...] = ()
    flags: Mapping[str, str] = field(default_factory=dict[str, str])
    serves: tuple[Serves, ...] = ()

    def cuda(self, version: str) -> CudaOf | None:
        return _latest(self.release, version)

    def architectures(self, version: str) -> tuple[str, ...] | None:
        """None when it is not known what this release serves."""
        found = _latest(self.serves, version)
        return found.architectures if found else None


def _latest(rows: tuple[R, ...], version: str) -> R | None:
    before = [row for row in rows if key(row.since) <= key(version)]
    return max(before, key=lambda row: key(row.since), default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Branch:
    """The way through the tree, a sentence a node, and the leaf at its end."""

    path: tuple[str, ...]
    leaf: Leaf


@cache
def outline(engine: str) -> EngineOutline:
    return read.toml(_FOLDER / "engines" / f"{engine}.toml", EngineOutline)


@cache
def rule(name: str) -> Rule:
    """One number by its id. UsageError lists them."""
    rows = read.toml_rows(_FOLDER / "rules.toml", "rule", Rule)
    for row in rows:
        if row.id == name:
            return row
    raise UsageError(f"there is no rule `{name}`", hint=(f"known: {', '.join(r.id for r in rows)}",))


@cache
def qualities() -> Mapping[str, Quality]:
    return {row.name: row for row in read.toml_rows(_FOLDER / "quality.toml", "scheme", Quality)}


@cache
def speculation(method: str) -> Speculation:
    """KeyError for a method that is none of `core.question.DraftMethod` is a bug."""
    rows = read.toml_rows(_FOLDER / "speculation.toml", "speculation", Speculation)
    return {row.method: row for row in rows}[method]


@cache
def _apis() -> Mapping[str, Api]:
    return {row.engine: row for row in read.toml_rows(_FOLDER / "apis.toml", "api", Api)}


def api(engine: str) -> Api | None:
    """What clients of an engine may ask for; None when nothing is known of it."""
    return _apis().get(engine)


def ladder() -> tuple[Rung, ...]:
    """GPUs to look at instead, the cheapest first."""
    return read.toml_rows(_FOLDER / "ladder.toml", "rung", Rung)


@cache
def _tree() -> tuple[Mapping[str, Node], Mapping[str, Leaf]]:
    path = _FOLDER / "tree.toml"
    nodes = {row.id: row for row in read.toml_rows(path, "node", Node)}
    return nodes, {row.id: row for row in read.toml_rows(path, "leaf", Leaf)}


def branch(situation: Mapping[str, str | float]) -> Branch:
    """The leaf that a situation leads to. KeyError for a word that no situation has is a bug of the tree."""
    nodes, leaves = _tree()
    here, path = "start", list[str]()
    while here in nodes:
        node = nodes[here]
        value = situation[node.ask]
        if node.at_least is not None:
            holds = float(value) >= node.at_least
            asked = f"{node.ask} {float(value):g} {'>=' if holds else '<'} {node.at_least:g}"
            if node.ask in YES_OR_NO:
                asked = f"{node.ask}: {'yes' if holds else 'no'}"
        else:
            holds = value == node.equals
            asked = f"{node.ask} is {value}"
        path.append(f"{asked}: {node.because}")
        here = node.yes if holds else node.no
    leaf = leaves[here]
    path.append(f"{' > '.join(leaf.order)}: {leaf.because}")
    return Branch(path=tuple(path), leaf=leaf)

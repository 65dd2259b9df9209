"""What a release of vLLM refuses in a checkpoint by its description alone. One row a change."""

from dataclasses import dataclass
from functools import cache

from model_optimizer.facts import read
from model_optimizer.facts.fact import Fact
from model_optimizer.facts.versions import key

_FILE = read.ROOT / "compatibility" / "vllm_checkpoints.toml"


@dataclass(frozen=True, slots=True, kw_only=True)
class Methods(Fact):
    """From release `since` on: values of `quant_method` that are read, `overridden` those that another method
    takes over, and the algorithms of ModelOpt."""

    since: str
    names: tuple[str, ...]
    overridden: tuple[str, ...] = ()
    modelopt: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal(Fact):
    """From release `since` on a feature of a description (`name`) is refused, or read as something else.

    `architectures` are those for which that holds, all when there is none.
    """

    name: str
    since: str
    says: str
    hint: str
    architectures: tuple[str, ...] = ()


@cache
def _methods() -> tuple[Methods, ...]:
    return read.toml_rows(_FILE, "methods", Methods)


@cache
def _refusals() -> tuple[Refusal, ...]:
    return read.toml_rows(_FILE, "refusal", Refusal)


def methods(version: str) -> Methods | None:
    """What a release reads; None before the first row, where it was not looked at."""
    known = [row for row in _methods() if key(row.since) <= key(version)]
    return max(known, key=lambda row: key(row.since), default=None)


def refusal(name: str, version: str) -> Refusal | None:
    """The row by which a release refuses a feature; None when it reads it."""
    return next((r for r in _refusals() if r.name == name and key(r.since) <= key(version)), None)

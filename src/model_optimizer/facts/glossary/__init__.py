"""Words that no engine owns: measures, counters of the GPU, variables of CUDA, settings of Windows."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

from model_optimizer.facts import read
from model_optimizer.facts.fact import Fact

_FOLDER = Path(__file__).parent


@dataclass(frozen=True, slots=True, kw_only=True)
class Term(Fact):
    """`also` are other names of it; `watch` is what is got wrong about it; `do` what to do."""

    name: str
    kind: Literal["metric", "variable", "term"] = "term"
    also: tuple[str, ...] = ()
    means: str
    watch: tuple[str, ...] = ()
    do: tuple[str, ...] = ()


@cache
def terms() -> tuple[Term, ...]:
    """Every term, in the order of the files."""
    return tuple(row for path in sorted(_FOLDER.glob("*.toml")) for row in read.toml_rows(path, "term", Term))


@cache
def by_name() -> Mapping[str, Term]:
    """Terms by each of their names, in lower case with single spaces."""
    return {plain(name): term for term in terms() for name in (term.name, *term.also)}


def plain(name: str) -> str:
    """`Power_Mode` and `power mode` are one name."""
    return " ".join(name.lower().replace("_", " ").replace("-", " ").split())

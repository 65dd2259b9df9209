"""What is commonly said of this field, and what is true of it. One TOML file a subject in this folder."""

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

from model_optimizer.facts import read
from model_optimizer.facts.fact import Fact

_FOLDER = Path(__file__).parent
Truth = Literal["true", "false", "outdated", "depends", "unverifiable"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim(Fact):
    """`said` is the claim as it is made, `asked` other ways to say or ask it; both find it.

    `why` is what is so, `do` what to do about it.
    """

    id: str
    said: str
    asked: tuple[str, ...] = ()
    verdict: Truth
    why: str
    do: str | None = None


@cache
def claims() -> tuple[Claim, ...]:
    """Every claim, in the order of the files."""
    return tuple(
        row for path in sorted(_FOLDER.glob("*.toml")) for row in read.toml_rows(path, "claim", Claim)
    )


def subjects() -> tuple[str, ...]:
    """The files, by name; opens none."""
    return tuple(sorted(path.stem for path in _FOLDER.glob("*.toml")))

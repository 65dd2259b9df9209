"""What a family of models wants from the engine beside its weights: parsers, and a stretched context."""

from dataclasses import dataclass
from functools import cache
from pathlib import Path

from model_optimizer.facts import read
from model_optimizer.facts.fact import Fact

_FOLDER = Path(__file__).parent


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe(Fact):
    """For the model types of config.json. Names of parsers are vLLM's, `reasoning_since` its release.

    `not_for` are words in names of models that share the type and not the recipe, `only_for` words of which
    a name must have one. With YaRN the context is
    `yarn_factor` times `yarn_original` tokens.
    """

    model_types: tuple[str, ...]
    not_for: tuple[str, ...] = ()
    only_for: tuple[str, ...] = ()
    reasoning_parser: str | None = None
    reasoning_since: str | None = None
    tool_call_parser: str | None = None
    sglang_reasoning_parser: str | None = None
    sglang_tool_call_parser: str | None = None
    yarn_factor: float | None = None
    yarn_original: int | None = None

    @property
    def longest(self) -> int | None:
        """Tokens with YaRN; None when the family is not stretched."""
        return (
            round(self.yarn_factor * self.yarn_original) if self.yarn_factor and self.yarn_original else None
        )


@cache
def _all() -> tuple[Recipe, ...]:
    return tuple(read.toml(path, Recipe) for path in sorted(_FOLDER.glob("*.toml")))


def find(model_type: str, name: str) -> Recipe | None:
    """The recipe of a model, the one for its name before that of its type; None when there is none."""
    for row in sorted(_all(), key=lambda row: not row.only_for):
        wanted = not row.only_for or any(word in name for word in row.only_for)
        if model_type in row.model_types and wanted and not any(word in name for word in row.not_for):
            return row
    return None

"""Which settings of an engine are worth trying: one file an engine, a row a setting."""

from dataclasses import dataclass

from model_optimizer.core import UsageError
from model_optimizer.facts import read
from model_optimizer.facts.fact import Fact

_FOLDER = read.ROOT / "tune"


@dataclass(frozen=True, slots=True, kw_only=True)
class KnobFact(Fact):
    """One setting. `name` is the engine's word; `env:NAME` is an environment variable.

    `values` are tried beside what the plan has; an empty one leaves it to the engine. `tasks` and the other
    conditions say when it matters at all: at least so many `gpus`, only models with `experts`, prompts
    of at least so many tokens. `sequences` and `tokens` mark numbers beyond which nothing changes: more
    sequences than clients, more tokens a step than all prompts hold. `default` is taken for a plan that says
    nothing. `on_request` ones are tried only when they are named.
    """

    name: str
    values: tuple[str, ...]
    because: str
    default: str = ""
    tasks: tuple[str, ...] = ("generate", "embed", "rerank")
    gpus: int = 1
    experts: bool = False
    prompt_tokens: int = 0
    sequences: bool = False
    tokens: bool = False
    on_request: bool = False
    since: str | None = None
    until: str | None = None


def engines() -> tuple[str, ...]:
    return tuple(sorted(path.stem for path in _FOLDER.glob("*.toml")))


def knobs(engine: str) -> tuple[KnobFact, ...]:
    """The settings of an engine that can be searched. UsageError when none are known."""
    path = _FOLDER / f"{engine}.toml"
    if not path.is_file():
        raise UsageError(
            f"no settings of {engine} are known to be worth trying",
            hint=(f"known: {', '.join(engines())}", "name one yourself: --knob NAME=A,B"),
        )
    return read.toml_rows(path, "knob", KnobFact)

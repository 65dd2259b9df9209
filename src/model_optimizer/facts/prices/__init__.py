"""Prices: what an hour of a GPU costs, and what a hosted API asks. The user's own file is the rule."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from model_optimizer.core import UsageError
from model_optimizer.facts import gpus, read
from model_optimizer.facts.fact import Fact

EXAMPLE = Path(__file__).parent / "example.toml"


@dataclass(frozen=True, slots=True, kw_only=True)
class Hosted:
    """Per million tokens, in the currency of the file."""

    input: float
    output: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices(Fact):
    """`gpu_per_hour` by any name that `facts.gpus` understands."""

    source: tuple[str, ...] = ("the price file",)
    currency: str
    gpu_per_hour: Mapping[str, float] = field(default_factory=dict[str, float])
    hosted_per_million_tokens: Hosted | None = None

    def of(self, gpu: str) -> float | None:
        """An hour of one GPU; None when the file does not say."""
        if gpu in self.gpu_per_hour:
            return self.gpu_per_hour[gpu]
        return next((p for name, p in self.gpu_per_hour.items() if gpus.find(name).name == gpu), None)


def load(path: Path) -> Prices:
    """A price file. UsageError when it cannot be read or holds something else."""
    try:
        found = msgspec.toml.decode(path.read_bytes(), type=Prices)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError, ValueError) as error:
        raise UsageError(
            f"`{path}` is not a price file",
            cause=(str(error),),
            hint=(
                "it is TOML with `currency` and a table [gpu_per_hour]; "
                "`mopt plan --prices example` shows what comes of one",
            ),
        ) from error
    bad = [name for name, price in found.gpu_per_hour.items() if not 0 < price < float("inf")]
    if bad:
        raise UsageError(f"`{path}`: the price of {bad[0]} must be above zero")
    return found


def example() -> Prices:
    return read.toml(EXAMPLE, Prices)

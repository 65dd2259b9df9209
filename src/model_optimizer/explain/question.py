"""What is asked, and of which machine and engine."""

from dataclasses import dataclass

from model_optimizer.core import UsageError
from model_optimizer.facts.flags import Table
from model_optimizer.facts.gpus import GpuFact

MOST_CHARACTERS = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """`engine` and `version` say what the answer must be valid for; the newest known release when None.

    `driver` is that of the machine where it shall run. `learned` are tables read from installed engines.
    `variables` are the environment variables that are set before a command.
    """

    thing: str
    gpu: GpuFact | None = None
    driver: str | None = None
    engine: str | None = None
    version: str | None = None
    learned: tuple[Table, ...] = ()
    variables: tuple[tuple[str, str], ...] = ()

    @property
    def capability(self) -> tuple[int, int] | None:
        return self.gpu.compute_capability if self.gpu else None

    def version_of(self, engine: str) -> str | None:
        """The release that was asked for, when it is one of this engine."""
        return self.version if self.engine == engine else None


def check(thing: str) -> None:
    """UsageError for what no answer can be given to."""
    if not thing.strip():
        raise UsageError(
            "there is nothing to explain",
            hint=("name a flag, a metric, a scheme, a claim or a command line", "see `mopt explain --help`"),
        )
    if len(thing) > MOST_CHARACTERS:
        raise UsageError(
            f"{len(thing):,} characters are more than can be explained",
            hint=(f"at most {MOST_CHARACTERS:,}; for a log: mopt diagnose LOG",),
        )
    if "\0" in thing:
        raise UsageError("this is binary, not text", hint=("for a log: mopt diagnose LOG",))

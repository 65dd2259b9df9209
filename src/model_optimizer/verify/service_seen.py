"""What was seen of a server, as nouns, and one number of it beside a limit."""

from dataclasses import dataclass, field

from model_optimizer.core import Comparison, LoadPoint, Scheme
from model_optimizer.core.verdict import Outcome

from .judged import Judged


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Tokens, as the server counts them."""

    prompt: int
    completion: int
    total: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """One answer of one request: the `prompt`'s number, its pieces in order, and how long it took.

    `gaps` are the nats between the two likeliest tokens at each piece, where the server tells; `error` says
    what went wrong. A model that embeds says a `vector` in place of pieces. `tokens` came where the server
    tells them, `asked` is the most that it was asked for, `ended` why it says that it ended.
    """

    prompt: int
    pieces: tuple[str, ...] = ()
    gaps: tuple[float, ...] = ()
    seconds: float = 0.0
    error: str | None = None
    vector: tuple[float, ...] = ()
    tokens: int | None = None
    asked: int | None = None
    ended: str | None = None
    usage: Usage | None = None

    @property
    def text(self) -> str:
        return "".join(self.pieces)


@dataclass(frozen=True, slots=True, kw_only=True)
class Feature:
    """A promise of the interface: how often it was asked for, and what was wrong with the answers."""

    name: str
    asked: int
    wrong: tuple[str, ...] = ()
    missing: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Resting:
    """What the engine says of itself when nothing runs, before and after the load; None where it is mute."""

    running: float | None = None
    kv_before: float | None = None
    kv_after: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """The number format that a server computes in, and by whom it was told; None where nobody says it."""

    scheme: Scheme | None = None
    by: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """All that was seen of a server. `markers[i]` is a word that only prompt i holds.

    `again` is as `together`, asked once more after it where later ones were slower or one waited; `listed`
    are the vectors that all prompts got in one request. `broke` says why there is no point of a load at all.
    `machine_slower` is how many times as long the same work of our own took after the load as before it.
    """

    url: str
    concurrency: int
    markers: tuple[str, ...]
    alone: tuple[Said, ...]
    together: tuple[Said, ...]
    again: tuple[Said, ...] = ()
    listed: tuple[Said, ...] = ()
    point: LoadPoint | None = None
    resting: Resting = field(default_factory=Resting)
    features: tuple[Feature, ...] = ()
    told: Told = Told()
    broke: str | None = None
    machine_slower: float = 1.0


def limit(
    metric: str, got: float | None, wanted: str, ok: bool, *, where: str, samples: int | None = None,
    because: str | None = None,
) -> Judged:  # fmt: skip
    """Pass where it is `ok`; `because` says what is wrong where it is not."""
    result: Outcome = "pass" if ok else "fail"
    return Judged(
        comparison=Comparison(
            metric=metric, got=got, wanted=wanted, outcome=result, where=where, samples=samples,
            because=None if ok else because,
        )
    )  # fmt: skip

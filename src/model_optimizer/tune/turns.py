"""Arms that are measured in turn: every arm once a round, each round in an order of its own.

A host that gets slower or faster meanwhile does so to all of them alike. Where the servers come from is not
said here: a bench is opened once for all arms, and measures the one that it is asked for.
"""

import math
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace

from model_optimizer.core import LoadPoint, Plan, Progress
from model_optimizer.core.study import Settings, TrialState

from . import finals

ROOM = 1.2
"""So much longer than the longest so far may the next one take before a pause. ASSUMED."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """One measurement to carry out. After the short probe it ends when its value is under `hopeless_below`.

    `thorough` runs skip the probe: they are for the record. `levels` are loaded in place of all, by
    shape of load (the empty name where there is one). Under several shapes `base` holds the default's values.
    `round` draws the lengths: arms of one round get the same.
    """

    number: int
    plan: Plan
    settings: Settings
    hopeless_below: float | None = None
    thorough: bool = False
    levels: Mapping[str, tuple[float, ...]] = field(default_factory=dict[str, tuple[float, ...]])
    base: Mapping[str, float] = field(default_factory=dict[str, float])
    round: int = 0

    @property
    def key(self) -> tuple[tuple[str, str], ...]:
        """What tells arms apart."""
        return tuple(sorted(self.settings.items()))


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of an order. `reference` is the name of the error when it failed.

    `shapes` names the shape of load of each point where there are several; `beside` is how memory was shared
    with servers that stood by. `preemptions` are those that the engine counted under the load.
    """

    state: TrialState
    points: tuple[LoadPoint, ...] = ()
    because: str | None = None
    reference: str | None = None
    start_s: float | None = None
    seconds: float | None = None
    kv_cache_tokens: int | None = None
    kv_cache_tokens_predicted: int | None = None
    worker: str | None = None
    shapes: tuple[str, ...] = ()
    beside: Settings = field(default_factory=dict[str, str])
    preemptions: int | None = None


Measure = Callable[[Order], Outcome | None]
"""Carries out one order; None when its arm is lost, which an earlier outcome has said."""

Open = Callable[[Sequence[Order]], AbstractContextManager[Measure]]
"""Is handed an order of each arm, and leaves nothing behind."""

Execute = Callable[[Sequence[Order]], Iterator[tuple[Order, Outcome]]]
"""Carries out orders, each with a start of its own, and yields each as it ends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """One of those that are compared."""

    name: str
    plan: Plan
    settings: Settings


class Paused(Exception):
    """No error: there is no time left for the next measurement; what was done is kept."""


@dataclass(slots=True)
class Budget:
    """Seconds until a pause. `left` is asked before each piece of work, whose kind has a name."""

    left: Callable[[], float]
    now: Callable[[], float]
    longest: dict[str, float] = field(default_factory=dict[str, float])

    def require(self, *kinds: str) -> None:
        """Raises Paused when work of these kinds would not end in time."""
        wanted = ROOM * sum(self.longest.get(kind, 0.0) for kind in kinds)
        if self.left() < max(wanted, 1e-9):
            raise Paused

    @contextmanager
    def spent(self, kind: str) -> Generator[None]:
        begun = self.now()
        yield
        self.took(kind, self.now() - begun)

    def took(self, kind: str, seconds: float | None) -> None:
        self.longest[kind] = max(self.longest.get(kind, 0.0), seconds or 0.0)


def endless() -> Budget:
    return Budget(left=lambda: math.inf, now=lambda: 0.0)


def in_turn(
    arms: Sequence[Arm],
    open_: Open,
    *,
    repeats: int,
    seed: int,
    done: Callable[[int, Arm], bool],
    taken: Callable[[int, Arm, Outcome], None],
    progress: Progress,
    budget: Budget,
    levels: Callable[[Arm], Mapping[str, tuple[float, ...]]] = lambda arm: {},
    base: Mapping[str, float] | None = None,
) -> None:
    """Hand each outcome to `taken`. Turns that are `done` are left out, as are arms with none left.

    `levels` of an arm are asked before each turn.
    """
    sequence = finals.order(len(arms), repeats, seed)
    todo = [(turn, arms[which]) for turn, which in enumerate(sequence) if not done(turn, arms[which])]
    if not todo:
        return
    orders = {
        arm.name: Order(
            number=0,
            plan=arm.plan,
            settings=arm.settings,
            thorough=True,
            levels=levels(arm),
            base=base or {},
        )
        for arm in arms
        if any(arm is other for _, other in todo)
    }
    budget.require("open", "turn")
    begun = budget.now()
    with open_(list(orders.values())) as measure:
        budget.took("open", budget.now() - begun)
        for turn, arm in todo:
            budget.require("turn")
            progress(f"{arm.name}: run {turn + 1} of {len(sequence)}", turn / len(sequence))
            with budget.spent("turn"):
                order = orders[arm.name]
                order = replace(order, number=turn, round=turn // len(arms) + 1, levels=levels(arm))
                outcome = measure(order)
            if outcome is not None:
                taken(turn, arm, outcome)


def each_alone(execute: Execute) -> Open:
    """A bench that starts a server for every order."""

    @contextmanager
    def opened(orders: Sequence[Order]) -> Generator[Measure]:
        del orders

        def measure(order: Order) -> Outcome | None:
            return next((outcome for _, outcome in execute([order])), None)

        yield measure

    return opened

"""A search for the best settings: the space, what was tried, what was proven, what each setting gave."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from .lengths import Lengths
from .measurement import LoadPoint
from .plan import Plan

Over = Literal["mean", "worst"]
"""How the values under several loads become one: their geometric mean, or the worst ratio to the default."""

Objective = Literal["goodput", "energy", "cost"]
TrialState = Literal["measured", "aborted", "failed", "pruned"]
Decision = Literal["better", "worse", "undecided"]
Settings = Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """One kind of traffic of a study: what requests look like, by a name."""

    name: str
    prompt_tokens: Lengths
    output_tokens: Lengths


@dataclass(frozen=True, slots=True, kw_only=True)
class Knob:
    """One dimension of the space. `name` is the engine's word, or `scheme` for the number format.

    `values` hold `default`, which is what the plan has; an empty value leaves the setting to the engine.
    """

    name: str
    values: tuple[str, ...]
    default: str
    because: str
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """How good a trial was. `value` is what the objective asks for, larger is better.

    `goodput_per_s` are requests a second, times the share of those begun under the load that met the SLO: the
    best of the levels, which `level` names.
    `signal` tells trials of equal value apart: it goes on where goodput has become 0. `tokens_per_joule`
    is None where energy could not be read. Under several shapes of load `shapes` has the value of each, and
    the other fields are their means (geometric ones for rates).
    """

    value: float
    signal: float
    goodput_per_s: float
    level: str
    output_tokens_per_s: float | None = None
    tokens_per_joule: float | None = None
    cost_per_million: float | None = None
    shapes: Mapping[str, float] = field(default_factory=dict[str, float])


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One start of one server. `settings` are those of the knobs, whole.

    `pruned` ones were not started, `aborted` ones were hopeless after the short probe, `failed` ones did not
    start or broke under load; `reference` is the error's. `seconds` is what it took, the start included.
    `shapes` names the shape of load of each point where there are several. `beside` is how memory was shared
    with servers that stood by, empty when it had the machine for itself. `preemptions` are requests that the
    engine threw out of its KV cache under the load, None where it does not say.
    """

    number: int
    state: TrialState
    settings: Settings
    proposed_by: str
    predicted: float | None = None
    score: Score | None = None
    points: tuple[LoadPoint, ...] = ()
    kv_cache_tokens: int | None = None
    kv_cache_tokens_predicted: int | None = None
    because: str | None = None
    reference: str | None = None
    start_s: float | None = None
    seconds: float | None = None
    worker: str | None = None
    shapes: tuple[str, ...] = ()
    beside: Settings = field(default_factory=dict[str, str])
    preemptions: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FinalRun:
    """One run of the second look, in the order of `turn`. `value` is None when it failed.

    Every arm is loaded once a `round`, which counts from 1 (0: not recorded, as before it was). A `resident`
    run loaded a server that stood by the others, with the settings `beside` in place of the plan's, and
    `sitting` counts how often those were started. Others had a start of their own.
    """

    turn: int
    settings: Settings
    value: float | None
    points: tuple[LoadPoint, ...] = ()
    because: str | None = None
    shapes: tuple[str, ...] = ()
    by_shape: Mapping[str, float] = field(default_factory=dict[str, float])
    resident: bool = False
    sitting: int = 1
    beside: Settings = field(default_factory=dict[str, str])
    seconds: float | None = None
    round: int = 0
    preemptions: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Paired:
    """The ratio within rounds: Student's t on the differences of logarithms of runs of the same round.

    What a whole round had in common, as a machine that was slow for a minute, is not in it.
    """

    ratio: float
    interval: tuple[float, float]
    pairs: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ShapeRatio:
    """The same ratio under one shape of load, decided as the `Duel` is."""

    shape: str
    ratio: float
    interval: tuple[float, float] | None
    decision: Decision
    paired: Paired | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Duel:
    """Two arms measured in turn: the ratio b/a of the objective at 95 %, `interval` being Welch's.

    `paired` is beside it where both arms were measured by servers that stood by each other in two rounds or
    more. `decided_by` names the interval that the decision is from.
    `runs_needed` is how many of each arm would decide at the spread that was seen; None when decided.
    Each run had a start of its own, or with `resident` each arm one server that stood by the others.
    """

    a: Settings
    b: Settings
    a_values: tuple[float, ...]
    b_values: tuple[float, ...]
    ratio: float | None
    interval: tuple[float, float] | None
    decision: Decision
    because: str
    runs_needed: int | None = None
    resident: bool = False
    shapes: tuple[ShapeRatio, ...] = ()
    paired: Paired | None = None
    decided_by: Literal["welch", "paired"] = "welch"

    @property
    def deciding(self) -> tuple[float, float] | None:
        """The interval that the decision is from."""
        return self.paired.interval if self.decided_by == "paired" and self.paired else self.interval


@dataclass(frozen=True, slots=True, kw_only=True)
class Contribution:
    """What is lost when one setting of the winner is put back: `verdict` compares winner (b) with it (a)."""

    name: str
    value: str
    back_to: str
    verdict: Duel


@dataclass(frozen=True, slots=True, kw_only=True)
class Prior:
    """What an earlier study found for some settings, as a ratio to that study's default."""

    settings: Settings
    ratio: float
    study: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """`plan` is the default. `winner` is None when nothing was proven better: the default then stays.

    `shapes` are the kinds of traffic where there are several, and `over` says how their values become one.
    `paused` says why it ended before its end, `cautions` what its numbers must be read with.
    """

    plan: Plan
    objective: Objective
    levels: tuple[float, ...]
    knobs: tuple[Knob, ...]
    combinations: int
    trials: tuple[Trial, ...] = ()
    final_runs: tuple[FinalRun, ...] = ()
    finals: tuple[Duel, ...] = ()
    contributions: tuple[Contribution, ...] = ()
    pareto: tuple[int, ...] = ()
    winner: Plan | None = None
    because: str | None = None
    predicted_error: float | None = None
    seed: int = 0
    started: str | None = None
    finished: str | None = None
    host_digest: str | None = None
    host_name: str | None = None
    notes: tuple[str, ...] = ()
    unverified: tuple[str, ...] = ()
    shapes: tuple[Shape, ...] = ()
    over: Over = "mean"
    paused: str | None = None
    cautions: tuple[str, ...] = ()

    @property
    def default(self) -> dict[str, str]:
        return {knob.name: knob.default for knob in self.knobs}

    @property
    def proven(self) -> Duel | None:
        """The best of those that were proven better: the one whose interval begins highest."""
        better = [found for found in self.finals if found.decision == "better"]
        return max(better, key=lambda found: (found.deciding or (0.0, 0.0))[0], default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lock:
    """What a tuned deployment was measured on: `mopt plan --check` compares it with a machine later.

    `versions` are of the engine and what it stands on, by package name.
    """

    plan: Plan
    plan_digest: str
    gpu: str | None
    gpus: int
    driver: str | None
    image: str | None
    engine: str
    engine_version: str | None
    versions: Mapping[str, str] = field(default_factory=dict[str, str])
    value: float | None = None
    ratio: float | None = None
    interval: tuple[float, float] | None = None
    objective: Objective = "goodput"
    date: str | None = None

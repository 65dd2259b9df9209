"""The decision: which engine, which scheme, which settings, and why each one."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from .workload import Slo, Workload

Source = Literal["user", "measured", "derived", "table", "assumed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One decision and its reason. `name` is the engine's own word for it."""

    name: str
    value: str
    because: str
    source: Source


@dataclass(frozen=True, slots=True, kw_only=True)
class Term:
    """One part of the memory of an engine process."""

    name: str
    bytes: int
    because: str
    source: Source


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """Milliseconds at three places of a distribution; None where nothing honest can be said."""

    p50: float | None = None
    mean: float | None = None
    p99: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """What is predicted. `interval` maps a field to the ends of its 80 % interval.

    Times of a distribution have their interval at the mean under `tpot_ms`, and at each place under
    `tpot_ms.p99`. `because` says why a field is null. `bound` is what limits: memory bandwidth, compute,
    launch overhead, network, or KV capacity. `settings` are what the numbers hold for, `step_ms` what a mean
    step of the engine is spent on, `notes` what a reader must know to use them.
    """

    memory: tuple[Term, ...] = ()
    ttft_ms: Spread = field(default_factory=Spread)
    tpot_ms: Spread = field(default_factory=Spread)
    e2e_ms: Spread = field(default_factory=Spread)
    output_tokens_per_s: float | None = None
    input_tokens_per_s: float | None = None
    requests_per_s: float | None = None
    saturated: bool | None = None
    bound: str | None = None
    provenance: str = "assumed"
    interval: Mapping[str, tuple[float, float]] = field(default_factory=dict[str, tuple[float, float]])
    because: Mapping[str, str] = field(default_factory=dict[str, str])
    settings: tuple[Setting, ...] = ()
    step_ms: Mapping[str, float] = field(default_factory=dict[str, float])
    notes: tuple[str, ...] = ()

    @property
    def memory_bytes(self) -> int:
        return sum(term.bytes for term in self.memory)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejection:
    """A combination that was considered and not taken."""

    engine: str
    scheme: str
    parallel: str = "1"
    reason: str
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """One link of the chain from a model to a GPU: does it hold? None when that could not be found out."""

    name: str
    holds: bool | None
    says: str
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Derivation:
    """One decision as a page of a notebook has it: what bounds it, the formula, its numbers, what follows."""

    title: str
    constraint: str
    formula: str = ""
    numbers: str = ""
    conclusion: str
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Crossover:
    """From the load `above` on (in `unit`), another combination needs fewer GPUs."""

    above: float
    unit: str
    engine: str
    scheme: str
    parallel: str
    because: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What the plan costs by the price file. Tokens are those of the load that was asked for.

    `break_even_tokens_per_day` is where it costs what the hosted API would; `because` shows the arithmetic.
    """

    currency: str
    per_hour: float
    per_million_output_tokens: float | None = None
    per_million_input_tokens: float | None = None
    per_million_tokens: float | None = None
    hosted_per_hour: float | None = None
    break_even_tokens_per_day: float | None = None
    because: str
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Nearest:
    """A plan that is feasible after one change: `axis` is what changes, `change` how."""

    axis: str
    change: str
    plan: "Plan"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One way to serve one model. `path` names the tools that make the checkpoint, in order.

    When it is not feasible, `binding` names the constraint that cannot be kept and `short_by` how far off
    it is, in `short_by_unit`; `nearest` holds what would be feasible. `prepare` are commands that make the
    checkpoint, `links` the chain from model to GPU, `branch` the way through the decision tree.
    """

    feasible: bool = True
    model: str
    checkpoint: str
    gpu: str | None = None
    gpus: int = 0
    host_digest: str | None = None
    workload: Workload
    slo: Slo
    engine: str
    engine_version: str | None = None
    image: str | None = None
    environment: str | None = None
    scheme: str
    format: str
    path: tuple[str, ...] = ()
    tensor_parallel: int = 1
    pipeline_parallel: int = 1
    data_parallel: int = 1
    expert_parallel: int = 1
    replicas: int = 1
    settings: tuple[Setting, ...] = ()
    estimate: Estimate = field(default_factory=Estimate)
    rejected: tuple[Rejection, ...] = ()
    command: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    binding: str | None = None
    short_by: float | None = None
    short_by_unit: str | None = None
    nearest: "tuple[Nearest, ...]" = ()
    prepare: tuple[tuple[str, ...], ...] = ()
    links: tuple[Link, ...] = ()
    branch: tuple[str, ...] = ()
    derivations: tuple[Derivation, ...] = ()
    crossover: tuple[Crossover, ...] = ()
    cost: Cost | None = None
    notes: tuple[str, ...] = ()

    def setting(self, name: str) -> str | None:
        """The value of a setting by name, None when the plan leaves it to the engine."""
        return next((s.value for s in self.settings if s.name == name), None)

"""How fast, how stable: load points with percentiles, and the health of the client that made them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from .workload import Slo, Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class Percentiles:
    """Milliseconds. A percentile that falls on a failed request is None, and `because` says so.

    `sd` is the standard deviation around `mean`, None where it was not kept. `mean_error` is the standard
    error of the mean as a share of it, from the means of ten stretches of the run: requests that follow each
    other are alike, so that `sd` alone would promise too much. None where there were too few.
    """

    p50: float | None = None
    p90: float | None = None
    p99: float | None = None
    mean: float | None = None
    p50_ci: tuple[float, float] | None = None
    p99_ci: tuple[float, float] | None = None
    sd: float | None = None
    mean_error: float | None = None
    because: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientHealth:
    """Could the client keep up? Lag and slip are in milliseconds, CPU a share of one core.

    `ceiling_requests_per_s` is what this client could send and read at these lengths, with `processes` cores.
    A run within 20 % of a limit is `marked`, one past it `invalid`: its numbers are the client's own.
    """

    cpu_share: float | None = None
    loop_lag_ms_p99: float | None = None
    schedule_slip_ms_p99: float | None = None
    ceiling_requests_per_s: float | None = None
    healthy: bool | None = None
    because: str | None = None
    verdict: Literal["valid", "marked", "invalid"] | None = None
    processes: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """The share of a load that one model (or adapter) of a mix answered."""

    name: str
    completed: int
    failed: int
    ttft_ms: Percentiles = field(default_factory=Percentiles)
    e2e_ms: Percentiles = field(default_factory=Percentiles)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One level that a search tried. `met` of `total` requests met every limit; `interval` is Wilson's, 95 %.

    `kept_up` is False when the queue grew for as long as load was offered; `aborted` when the level was sure
    to miss before its end.
    """

    level: float
    met: int
    total: int
    interval: tuple[float, float]
    meets: bool
    kept_up: bool = True
    aborted: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """The highest level that meets the SLO. `best` is None when none did.

    `resolved` is False when chance, a limit of the search or too few requests leave it open: `because` says
    which. The true one lies between `best` and `above`, the lowest level that missed.
    """

    axis: Literal["concurrency", "requests/s"]
    best: float | None
    above: float | None
    resolved: bool
    because: str
    share: float
    trials: tuple[Trial, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadPoint:
    """One level of load. `target` is what was asked: `concurrency 8` or `20 requests/s poisson`.

    The window is `window_s` long and leaves out warm-up and drain; `window` says where it begins and
    ends. `ttft_ms` and `e2e_ms` start at `start`; both starts are kept beside them. Percentiles and
    `completed`, `failed` are of the requests that began in the window, rates of what was done in it.
    `attainment` is the share of those requests that met every limit. `energy_j` is None where it could
    not be measured; `energy_source` says how it was.

    `steady` is whether latency stayed the same within the window, None where there were too few requests
    to tell; `drift` is by what share it was higher in the second half. `met` requests met every limit. A
    level that was run several times has `runs`, the `half_widths` of the 95 % intervals of its means over
    runs (as shares of the means), and whether they became as narrow as asked (`resolved`).
    """

    target: str
    concurrency: int | None = None
    qps: float | None = None
    completed: int
    failed: int
    errors: Mapping[str, int] = field(default_factory=dict[str, int])
    error_examples: Mapping[str, str] = field(default_factory=dict[str, str])
    window_s: float
    window: str | None = None
    requests_per_s: float | None = None
    input_tokens_per_s: float | None = None
    output_tokens_per_s: float | None = None
    goodput_requests_per_s: float | None = None
    attainment: float | None = None
    start: Literal["scheduled", "sent"] = "sent"
    ttft_ms: Percentiles = field(default_factory=Percentiles)
    tpot_ms: Percentiles = field(default_factory=Percentiles)
    itl_ms: Percentiles = field(default_factory=Percentiles)
    e2e_ms: Percentiles = field(default_factory=Percentiles)
    ttft_from_scheduled_ms: Percentiles = field(default_factory=Percentiles)
    ttft_from_sent_ms: Percentiles = field(default_factory=Percentiles)
    e2e_from_scheduled_ms: Percentiles = field(default_factory=Percentiles)
    e2e_from_sent_ms: Percentiles = field(default_factory=Percentiles)
    tokens_counted_by: str | None = None
    prompt_tokens_mean: float | None = None
    prompt_tokens_drift: float | None = None
    output_tokens_mean: float | None = None
    tokens_per_chunk: float | None = None
    energy_j: float | None = None
    energy_source: str = "not measurable here"
    memory_bytes: int | None = None
    memory_source: str | None = None
    client: ClientHealth = field(default_factory=ClientHealth)
    vllm_bench: Mapping[str, float | int | None] = field(default_factory=dict[str, float | int | None])
    notes: tuple[str, ...] = ()
    interrupted: bool = False
    steady: bool | None = None
    steady_because: str | None = None
    drift: float | None = None
    met: int | None = None
    aborted: bool = False
    parts: tuple[Part, ...] = ()
    runs: int = 1
    half_widths: Mapping[str, float | None] = field(default_factory=dict[str, float | None])
    resolved: bool | None = None

    @property
    def rises(self) -> bool:
        """Whether latency grew within the window; one that falls belongs to a server that warms up."""
        return self.steady is False and (self.drift is None or self.drift > 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """`client` is the least healthy of the points' clients, `vllm_bench` that of the last point.

    `invalid` says why nothing of it counts (a GPU failed while it ran), None when it does. `made_by` is the
    tool that measured, None for this one. `capacity` is what a search found; `pareto` names the points of a
    sweep that no other one beats in both throughput and latency.
    """

    points: tuple[LoadPoint, ...]
    client: ClientHealth = field(default_factory=ClientHealth)
    telemetry: Mapping[str, object] = field(default_factory=dict[str, object])
    definitions: Mapping[str, str] = field(default_factory=dict[str, str])
    vllm_bench: Mapping[str, float | int | None] = field(default_factory=dict[str, float | int | None])
    url: str | None = None
    model: str | None = None
    api: str | None = None
    workload: Workload | None = None
    slo: Slo | None = None
    seed: int | None = None
    host_digest: str | None = None
    plan_digest: str | None = None
    started: str | None = None
    notes: tuple[str, ...] = ()
    interrupted: bool = False
    invalid: str | None = None
    made_by: str | None = None
    capacity: Capacity | None = None
    pareto: tuple[str, ...] = ()

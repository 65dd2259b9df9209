"""What will be asked of the model, and what counts as good enough."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from .lengths import Lengths
from .model import Task

Arrivals = Literal["closed", "constant", "poisson", "gamma", "burst", "trace"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """Either `qps` (an open loop) or `concurrency` (a closed one) is given.

    `burstiness` is the shape of gamma arrivals: below 1 clusters, 1 is Poisson, above 1 evens out.
    Lengths are in tokens. `shared_prefix` is the number of prompt tokens that all requests share.
    With `ramp_to_qps` the rate goes from `qps` to it in a straight line, within `ramp_s` seconds. `trace`
    names the file whose arrivals are replayed, with its digest. `turns` is how many requests a session has
    (None: each request stands alone), `think_time_s` the mean pause before the next turn. `models` are names
    with their shares of the load, `images` what each request carries, as `WIDTHxHEIGHT`.
    """

    task: Task = "generate"
    arrivals: Arrivals = "closed"
    qps: float | None = None
    burstiness: float = 1.0
    concurrency: int | None = None
    requests: int | None = None
    prompt_tokens: Lengths = field(default_factory=lambda: Lengths.fixed(128))
    output_tokens: Lengths = field(default_factory=lambda: Lengths.fixed(32))
    shared_prefix: int = 0
    ramp_to_qps: float | None = None
    ramp_s: float | None = None
    trace: str | None = None
    turns: Lengths | None = None
    think_time_s: float = 0.0
    models: Mapping[str, float] = field(default_factory=dict[str, float])
    images: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Slo:
    """Limits, each at `percentile`; None means that no limit was asked.

    `quality` is the least recovery of the reference's quality that is accepted, 1.0 meaning equal;
    None leaves it to the gate of each scheme.
    """

    ttft_ms: float | None = None
    tpot_ms: float | None = None
    e2e_ms: float | None = None
    percentile: float = 99
    error_rate: float = 0.0
    quality: float | None = None

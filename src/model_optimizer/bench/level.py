"""What one level of load asks for, and what became of it."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

from model_optimizer.core.workload import Arrivals

from .arrivals import Ramp, offsets_ns
from .exchange import Outcome
from .overload import Overload


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """What one level asks for. `warmup` requests come first, then `requests` of them or `duration_s`.

    `title` is how people read it: `concurrency 8`. `offsets_ns` are the arrivals of a trace. Of `shares`
    processes that drive the level together this is number `share`; `concurrency` is then its own part.
    A session's next turn follows its last answer after `think_time_s` on average. With `overload` the level
    ends as soon as it is sure to miss its limits.
    """

    title: str
    arrivals: Arrivals
    concurrency: int | None = None
    qps: float | None = None
    burstiness: float = 1.0
    requests: int | None = None
    duration_s: float | None = None
    warmup: int = 0
    seed: int = 0
    timeout_s: float = 300.0
    keep_bytes: int = 256 << 20
    ramp: Ramp | None = None
    offsets_ns: tuple[int, ...] | None = None
    share: int = 0
    shares: int = 1
    think_time_s: float = 0.0
    overload: Overload | None = None

    def arrivals_ns(self) -> Iterable[int]:
        """All arrival times after the start, of all processes together."""
        if self.offsets_ns is not None:
            return self.offsets_ns
        return offsets_ns(self.arrivals, self.qps or math.inf, self.burstiness, self.seed, self.ramp)


@dataclass(frozen=True, slots=True, kw_only=True)
class Driven:
    """A level that was driven. The window is open from `opened_ns` until `closed_ns`, when load was no
    longer offered; `ended_ns` is when the last answer was in. `slips_ms` are how late requests of an
    open loop were begun, `lags_ms` how late the event loop was. `given_up` requests were under way when
    it was interrupted or aborted: they count nowhere. `processes` is how many drove it together, and
    `cpu_share` the share of one core that the busiest of them took.
    """

    level: Level
    outcomes: tuple[Outcome, ...]
    opened_ns: int
    closed_ns: int
    ended_ns: int
    slips_ms: tuple[float, ...] = ()
    lags_ms: tuple[float, ...] = ()
    cpu_share: float | None = None
    given_up: int = 0
    stopped: str | None = None
    interrupted: bool = False
    aborted: bool = False
    processes: int = 1

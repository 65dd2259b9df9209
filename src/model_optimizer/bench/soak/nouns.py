"""What a soak is asked, what one of its windows saw, and what came of it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Outcome = Literal["sound", "leaks", "degrades", "unstable", "undecided", "invalid"]
Judgement = Literal["level", "rises", "undecided", "not available"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """The first line of the journal. A resumed soak must ask the same of the same server.

    `for_s` is the whole length; the time in which the soak itself was down counts. `load` says the load in
    words. `error_rate` is the share of failed requests that is still accepted.
    """

    url: str
    model: str | None
    load: str
    for_s: float
    window_s: float
    error_rate: float = 0.001
    began: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What was read while the server was idle. None is what could not be read."""

    gpu_memory_bytes: float | None = None
    server_rss_bytes: float | None = None
    open_files: float | None = None
    kv_usage: float | None = None
    started_s: float | None = None
    events: tuple[str, ...] = ()
    fatal: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SoakWindow:
    """One stretch of load, and a look at the idle server after it. `at_s` is when it began, in seconds since
    the soak did; `wall_s` the same as the time of day (Unix). Errors are counted by kind: connect, timeout,
    http_4xx, http_5xx, truncated_stream, wrong_content."""

    number: int
    at_s: float
    wall_s: float
    seconds: float
    completed: int = 0
    failed: int = 0
    errors: Mapping[str, int] = field(default_factory=dict[str, int])
    examples: Mapping[str, str] = field(default_factory=dict[str, str])
    requests_per_s: float | None = None
    ttft_p50_ms: float | None = None
    ttft_p99_ms: float | None = None
    tpot_p50_ms: float | None = None
    e2e_p50_ms: float | None = None
    e2e_p99_ms: float | None = None
    unreachable: bool = False
    restarted: bool = False
    look: Look = field(default_factory=Look)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trend:
    """One quantity over the windows since the last restart that left enough of them.

    `slope_per_h` is the middle of all slopes between two windows (Theil and Sen), `interval` its 95 %
    interval with neighbouring windows taken to depend on each other. `tolerance` is the growth over the
    stretch that is not held against the server, in the quantity's unit.
    """

    quantity: str
    unit: str
    judgement: Judgement
    because: str
    windows: int = 0
    level: float | None = None
    slope_per_h: float | None = None
    interval: tuple[float, float] | None = None
    grown: float | None = None
    tolerance: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Soak:
    """The answer. `outcome` is the worst of what was found; `because` says it in words."""

    task: Task
    outcome: Outcome
    because: tuple[str, ...]
    windows: int
    hours: float
    completed: int
    failed: int
    errors: Mapping[str, int] = field(default_factory=dict[str, int])
    examples: Mapping[str, str] = field(default_factory=dict[str, str])
    restarts: int = 0
    unreachable_windows: int = 0
    trends: tuple[Trend, ...] = ()
    events: tuple[str, ...] = ()
    finished: bool = False

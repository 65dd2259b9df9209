"""How a load is driven, beside what is asked (Workload) and of whom (Target)."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchOptions:
    """`levels` are concurrencies of a closed loop or rates of an open one, measured one after the other
    in place of the workload's own. `duration_s` ends a level by time, else `requests` of the workload do.

    `warmup` is the number of requests before the window, None for a number that fits the load.
    `timeout_s` is the limit of one request, from the moment it was to be sent. `ignore_eos` asks the
    server to go on to the wanted length, where it knows how. `prompts` is a JSONL file of real ones.
    `contents` is the seed of what prompts say, None for that of the measurement. `documents` is how many
    texts a rerank or score request holds. `trace` is a file whose arrivals are replayed, `speed` times as
    fast. `processes` share the load, None for as many as it needs.

    `until` repeats a level until the intervals of its means are that narrow (0.03 is 3 % on either side), at
    most `most_repeats` times. `search` "max" looks for the highest level that meets the SLO and "sweep"
    doubles the level until that gains nothing, both from the first level and up to `search_limit`.
    """

    levels: tuple[float, ...] = ()
    duration_s: float | None = None
    warmup: int | None = None
    timeout_s: float = 300.0
    connect_timeout_s: float = 10.0
    ignore_eos: bool = True
    temperature: float | None = 0.0
    prompts: str | None = None
    contents: int | None = None
    documents: int = 4
    answer_limit_bytes: int = 64 << 20
    keep_bytes: int = 256 << 20
    ceiling_requests_per_s: float | None = None
    trace: str | None = None
    speed: float = 1.0
    processes: int | None = 1
    until: float | None = None
    most_repeats: int = 10
    search: Literal["max", "sweep"] | None = None
    search_limit: float | None = None
    resolution: float = 0.05

"""How a load is driven, beside what is asked (Workload) and of whom (Target)."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchOptions:
    """`levels` are concurrencies of a closed loop or rates of an open one, measured one after the other
    in place of the workload's own. `duration_s` ends a level by time, else `requests` of the workload do.

    `warmup` is the number of requests before the window, None for a number that fits the load.
    `timeout_s` is the limit of one request, from the moment it was to be sent. `ignore_eos` asks the
    server to go on to the wanted length, where it knows how. `prompts` is a JSONL file of real ones.
    `documents` is how many texts a rerank or score request holds.
    """

    levels: tuple[float, ...] = ()
    duration_s: float | None = None
    warmup: int | None = None
    timeout_s: float = 300.0
    connect_timeout_s: float = 10.0
    ignore_eos: bool = True
    temperature: float | None = 0.0
    prompts: str | None = None
    documents: int = 4
    answer_limit_bytes: int = 64 << 20
    keep_bytes: int = 256 << 20
    ceiling_requests_per_s: float | None = None

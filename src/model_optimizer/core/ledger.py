"""One number that was measured, beside what was predicted for it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from .workload import Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerRow:
    """`quantity` is a field of an estimate: `tpot_ms.p50`, `ttft_ms.p50`, `output_tokens_per_s`.

    `predicted` and `interval` are what the product said at the time, None when it was not asked. `gpu` is
    the full name in the facts, `gpus` how many one replica had. `settings` are the engine's own words for
    what differed from its defaults; `settings_digest` names all of them. `source` is where the measurement
    is kept.
    """

    quantity: str
    measured: float
    predicted: float | None = None
    interval: tuple[float, float] | None = None
    unit: str
    model: str
    gpu: str
    gpus: int = 1
    engine: str
    version: str
    scheme: str
    workload: Workload
    settings: Mapping[str, str] = field(default_factory=dict[str, str])
    settings_digest: str | None = None
    host_digest: str | None = None
    date: str
    source: str

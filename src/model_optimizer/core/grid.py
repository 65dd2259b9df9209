"""Times of a model's kernels at some sizes, as tables of measurements give them, and what they are asked."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class StepGrid:
    """Times of a model's kernels at some sizes, in milliseconds, as tables of measurements give them.

    `rest_ms` is everything but attention and the output head at each number of `tokens`, `head_ms` the head;
    `decode_ms` is the attention of each number of `sequences` (rows) at each of `contexts`; the attention of
    prompts of each length in `prompts` is `prefill_ms` once and `prompt_ms` for each prompt. `source` says
    whose tables, `measured` what share of the time was measured there.
    """

    tokens: tuple[int, ...]
    rest_ms: tuple[float, ...]
    head_ms: tuple[float, ...]
    sequences: tuple[int, ...]
    contexts: tuple[int, ...]
    decode_ms: tuple[tuple[float, ...], ...]
    prompts: tuple[int, ...]
    prefill_ms: tuple[float, ...]
    prompt_ms: tuple[float, ...]
    source: str
    measured: float


@dataclass(frozen=True, slots=True, kw_only=True)
class GridRequest:
    """What a grid is made for. The `*_mode` are the tables' own words for number formats, None for theirs.

    `config` is the model's config.json.
    """

    model: str
    config: Mapping[str, object]
    system: str
    engine: str
    version: str
    tensor_parallel: int = 1
    gemm_mode: str | None = None
    moe_mode: str | None = None
    kv_mode: str | None = None

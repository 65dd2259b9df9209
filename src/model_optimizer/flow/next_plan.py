"""What to change when a server did not start because memory is short: one step, checked by the planner.

What the engine's own message allows comes first, then shorter requests, fewer at once, a KV cache of 8 bits,
and at last no CUDA graphs. A step that the planner knows not to be enough is left out.
"""

import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from model_optimizer.core import Fit, Plan
from model_optimizer.core.diagnosis import Recognized
from model_optimizer.serve.plain import with_settings

Short = Literal["cache", "work", "free", "host", "static", "weights"]

SHORT: Mapping[str, Short] = {
    "vllm-kv-too-small": "cache",
    "vllm-kv-too-small-v0": "cache",
    "vllm-no-cache-blocks": "cache",
    "cuda-oom": "work",
    "cuda-cublas-alloc": "work",
    "cuda-sampler-oom": "work",
    "vllm-graph-oom": "work",
    "vllm-free-memory": "free",
    "vllm-cpu-memory": "host",
    "sglang-static-fraction": "static",
    "vllm-model-too-large": "weights",
    "host-oom-kill": "weights",
    "host-memory-alloc": "weights",
}
"""Which memory is short, by the failure that `diagnose` found."""

_SAID = (
    re.compile(r"estimated maximum model length is (\d+)"),
    re.compile(r"maximum number of tokens that can be stored in KV cache \((\d+)\)"),
)
GIB = 2**30
LEAST_CONTEXT = 128
"""Tokens: a server for less is of no use. ASSUMED."""

ALIGN = 16
"""Tokens of a block of KV cache in most engines."""

SPARE_GIB = 0.5
SHARE_STEP = 0.05
LEAST_SHARE, MOST_SHARE = 0.3, 0.95
FP8_FROM = (8, 9)


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """Settings by the engine's own names, and why they should be enough."""

    settings: Mapping[str, str]
    because: str

    def of(self, plan: Plan) -> Plan:
        return with_settings(plan, self.settings)


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """A start that memory stopped. `words` are the engine's names for what can be changed, `said` its log.

    `fits` asks the planner (None where it cannot say), `spare_bytes` is free main memory, and
    `compute_capability` that of the GPU; None on a CPU.
    """

    plan: Plan
    found: Recognized
    words: Mapping[str, str]
    said: str = ""
    fits: Callable[[Plan], Fit | None] = field(default=lambda _plan: None)
    spare_bytes: int | None = None
    compute_capability: tuple[int, int] | None = None

    def now(self, word: str) -> str | None:
        name = self.words.get(word)
        return self.plan.setting(name) if name else None


def next_change(failed: Failed) -> Change | None:
    """The first step that may be enough; None when memory was not the cause, or when no setting helps."""
    short = SHORT.get(failed.found.id)
    if short is None:
        return None
    for change in _STEPS[short](failed):
        fit = failed.fits(change.of(failed.plan))
        if fit is None or fit.fits:
            return change
    return None


def _cache(failed: Failed) -> Iterator[Change]:
    """The KV cache holds no request of full length."""
    yield from _more_bytes(failed)
    yield from _said_context(failed)
    yield from _fitting_context(failed)
    yield from _half(failed, "sequences", least=1)
    yield from _kv_in_8_bits(failed)
    yield from _half(failed, "context", least=LEAST_CONTEXT)
    yield from _eager(failed)


def _work(failed: Failed) -> Iterator[Change]:
    """Weights and cache fit, what is computed beside them does not."""
    yield from _fitting_context(failed)
    yield from _half(failed, "sequences", least=1)
    yield from _half(failed, "tokens", least=LEAST_CONTEXT)
    yield from _share(failed, -SHARE_STEP)
    yield from _kv_in_8_bits(failed)
    yield from _half(failed, "context", least=LEAST_CONTEXT)
    yield from _eager(failed)


def _free(failed: Failed) -> Iterator[Change]:
    """Others hold a part of the GPU: take what is left."""
    values, name = failed.found.values, failed.words.get("share")
    try:
        share = (float(values["free"]) - SPARE_GIB) / float(values["total"])
    except (KeyError, ValueError, ZeroDivisionError):
        return
    share = math.floor(share * 100) / 100
    if name and share >= LEAST_SHARE:
        taken = {name: f"{share:g}"}
        because = f"{values['free']} of {values['total']} GiB are free, {SPARE_GIB} GiB of it stay so"
        yield Change(settings=taken, because=because)
        for change in _fitting_context(failed, taken):
            yield Change(settings={**taken, **change.settings}, because=f"{because}; {change.because}")


def _host(failed: Failed) -> Iterator[Change]:
    yield from _half(failed, "kv_bytes", least=2**24)


def _static(failed: Failed) -> Iterator[Change]:
    yield from _share(failed, SHARE_STEP)


def _weights(failed: Failed) -> Iterator[Change]:
    """No setting makes weights smaller: another number format is another plan."""
    yield from ()


_STEPS: Mapping[Short, Callable[[Failed], Iterator[Change]]] = {
    "cache": _cache, "work": _work, "free": _free, "host": _host, "static": _static, "weights": _weights,
}  # fmt: skip


def _more_bytes(failed: Failed) -> Iterator[Change]:
    """On a CPU the cache is main memory: where there is some, it may be as large as it has to be."""
    name, need = failed.words.get("kv_bytes"), failed.found.values.get("need")
    if not name or not need or failed.spare_bytes is None:
        return
    wanted = math.ceil(float(need) * 1.1 * GIB)
    if wanted <= failed.spare_bytes // 2:
        because = f"one request of full length needs {need} GiB, and main memory has that"
        yield Change(settings={name: str(wanted)}, because=because)


def _said_context(failed: Failed) -> Iterator[Change]:
    numbers = [int(found[-1]) for pattern in _SAID if (found := pattern.findall(failed.said))]
    if numbers:
        yield from _context(failed, numbers[-1], "the engine's own message says so")


def _fitting_context(failed: Failed, more: Mapping[str, str] | None = None) -> Iterator[Change]:
    plan = with_settings(failed.plan, more) if more else failed.plan
    fit = failed.fits(plan)
    if fit is not None and fit.largest_max_model_len is not None:
        yield from _context(failed, fit.largest_max_model_len, "the longest that fits by `mopt fit`")


def _context(failed: Failed, tokens: int, because: str) -> Iterator[Change]:
    """A context of whole blocks, when it is shorter than now and still of use."""
    name, now = failed.words.get("context"), failed.now("context")
    tokens = tokens // ALIGN * ALIGN
    if not name or tokens < LEAST_CONTEXT or (now is not None and tokens >= int(now)):
        return
    longest = failed.plan.workload.prompt_tokens.quantile(0.999)
    if failed.plan.workload.task == "generate":
        longest += failed.plan.workload.output_tokens.quantile(0.999)
    cut = f"; the longest requests of the load need {longest:,}" if tokens < longest else ""
    yield Change(settings={name: str(tokens)}, because=f"{tokens:,} tokens: {because}{cut}")


def _half(failed: Failed, word: str, *, least: int) -> Iterator[Change]:
    name, now = failed.words.get(word), failed.now(word)
    if name and now and now.isdigit() and int(now) // 2 >= least:
        yield Change(settings={name: str(int(now) // 2)}, because=f"half of {now}")


def _share(failed: Failed, step: float) -> Iterator[Change]:
    name, now = failed.words.get("share"), failed.now("share")
    if name and now:
        share = round(float(now) + step, 2)
        if LEAST_SHARE <= share <= MOST_SHARE and share != float(now):
            yield Change(
                settings={name: f"{share:g}"},
                because=f"{abs(step):.0%} of the GPU {'more' if step > 0 else 'less'}",
            )


def _kv_in_8_bits(failed: Failed) -> Iterator[Change]:
    name, have = failed.words.get("kv_cache"), failed.compute_capability
    if name and have and have >= FP8_FROM and failed.now("kv_cache") in (None, "auto"):
        because = "a KV cache of 8 bits holds twice as many tokens; the quality was not measured with it"
        yield Change(settings={name: "fp8"}, because=because)


def _eager(failed: Failed) -> Iterator[Change]:
    name = failed.words.get("eager")
    if name and failed.now("eager") != "1":
        because = "no memory for CUDA graphs; tokens take longer"
        yield Change(settings={name: "1"}, because=because)

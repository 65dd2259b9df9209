"""Bytes and limits that the CPU engines share. Measured numbers are in _measured.toml."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from model_optimizer.core import Host, ModelSpec, Scheme, Setting, Term, Workload

MOST_OF_ALL = 0.999
"""Share of requests that must fit; the rest is refused with a clear error."""

ROOM_FOR_A_PERSON = 2048
"""Least context in tokens, so that a server made for a small load test can also be talked to. ASSUMED."""

MOST_RUNNING = 32
DEFAULT_RUNNING = 8
LOGITS_BUDGET_BYTES = 512 * 2**20
"""Of one prefill step: 256 tokens where the vocabulary has 152,000. ASSUMED."""

FLOAT_BYTES = 4
SCALE_BYTES = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One table of _measured.toml."""

    process_bytes: int
    source: str
    resident: Mapping[str, float] = field(default_factory=dict[str, float])


@cache
def measured(engine: str, task: str) -> Measured:
    """What was measured of an engine for a task; KeyError for an engine that has no table."""
    import msgspec

    text = Path(__file__).with_name("_measured.toml").read_bytes()
    return msgspec.toml.decode(text, type=dict[str, dict[str, Measured]])[engine][task]


def longest(model: ModelSpec, work: Workload) -> int:
    """The context in tokens that is offered: what requests of this workload need and a person's beside it.

    An encoder offers all of its positions, since nothing is kept for them between steps.
    """
    if not keeps_tokens(model):
        return model.max_position or work.prompt_tokens.quantile(MOST_OF_ALL)
    needed = work.prompt_tokens.quantile(MOST_OF_ALL)
    if work.task == "generate":
        needed += work.output_tokens.quantile(MOST_OF_ALL)
    needed = max(needed, ROOM_FOR_A_PERSON)
    return min(needed, model.max_position) if model.max_position else needed


def keeps_tokens(model: ModelSpec) -> bool:
    """Whether it has a KV cache at all."""
    return model.kv_bytes_per_token() > 0


def request_tokens(model: ModelSpec, work: Workload) -> int:
    """The most tokens of KV cache that one request of this workload fills."""
    needed = work.prompt_tokens.quantile(MOST_OF_ALL) + work.output_tokens.quantile(MOST_OF_ALL)
    return min(needed, model.max_position) if model.max_position else needed


def running(work: Workload) -> int:
    """How many requests are computed at once."""
    return min(work.concurrency or DEFAULT_RUNNING, MOST_RUNNING)


def prefill_tokens(model: ModelSpec) -> int:
    """Tokens of prompts that one step reads: a power of two whose logits stay within their budget."""
    affordable = LOGITS_BUDGET_BYTES // (2 * FLOAT_BYTES * model.vocab_size)
    return max(64, min(2048, 1 << max(0, affordable.bit_length() - 1)))


def batch_tokens(work: Workload, limit: int) -> int:
    """Prompt tokens that one step of this workload computes at most, padded, where `limit` are allowed."""
    return min(limit, running(work) * work.prompt_tokens.quantile(MOST_OF_ALL))


def kv_bytes(model: ModelSpec, tokens: int, bits: int) -> int:
    """KV cache and recurrent state of one request; a window remembers no more than its length."""
    total = 0
    for group in model.groups:
        kept = min(tokens, group.window) if group.window else tokens
        total += group.layers * (group.kv_bytes_per_token_16 * kept * bits // 16 + group.state_bytes)
    return total


def float_weights(model: ModelSpec, scheme: Scheme, resident: float = 1.0) -> Term:
    """All weights in one float format."""
    size = scheme.weight_bits // 8
    return Term(
        name="weights",
        bytes=round(model.parameters * size * resident),
        because=f"{model.parameters:,} parameters x {size} bytes{_times(resident)}",
        source="derived",
    )


def process(engine: str, task: str) -> Term:
    found = measured(engine, task)
    return Term(
        name="runtime", bytes=found.process_bytes, because=" ".join(found.source.split()), source="measured"
    )


def kv_cache(model: ModelSpec, work: Workload, bits: int, count: int) -> Term:
    tokens = request_tokens(model, work)
    return Term(
        name="kv_cache",
        bytes=count * kv_bytes(model, tokens, bits),
        because=f"{count} requests at once x {tokens} tokens, {bits} bits",
        source="derived",
    )


def threads(host: Host) -> tuple[Setting, ...]:
    """As many as there are cores; nothing where the host does not say."""
    if not host.cpu.cores:
        return ()
    return (
        Setting(
            name="threads",
            value=str(host.cpu.cores),
            because=f"one for each of the {host.cpu.cores} cores that this process may use",
            source="derived",
        ),
    )


def context(model: ModelSpec, work: Workload) -> Setting:
    length = longest(model, work)
    if model.max_position and length >= model.max_position:
        because = f"the model has {model.max_position} positions"
    elif length == ROOM_FOR_A_PERSON:
        because = "the workload needs less; room for requests by hand"
    else:
        because = f"{MOST_OF_ALL:.1%} of the workload's requests fit"
    return Setting(name="max_model_len", value=str(length), because=because, source="derived")


def at_once(work: Workload) -> Setting:
    count = running(work)
    if work.concurrency is None:
        return Setting(
            name="max_batch_size",
            value=str(count),
            because="the workload does not say how many requests are in flight",
            source="assumed",
        )
    because = f"{work.concurrency} requests in flight" + (
        "" if count == work.concurrency else f", more than {MOST_RUNNING} gain nothing on a CPU"
    )
    return Setting(name="max_batch_size", value=str(count), because=because, source="derived")


def gather(work: Workload, wait_ms: str) -> Setting:
    """How long an idle server waits for company."""
    if running(work) == 1:
        return Setting(name="batch_timeout_ms", value="0", because="one request at a time", source="derived")
    because = "requests that come together are computed together; short beside one request's own time"
    return Setting(name="batch_timeout_ms", value=wait_ms, because=because, source="assumed")


def _times(factor: float) -> str:
    return "" if factor == 1 else f", {factor:g} bytes in memory for each (measured)"

"""The steady state of one replica by a fixed point: quick enough to look at every candidate.

The service model in planner/service plays a load through event by event; this finds the mean batch that a load
leads to, and from it times, and is used to search. What is chosen is then played through.
"""

import math
from dataclasses import dataclass

from model_optimizer.core import Slo, Workload
from model_optimizer.core.steps import Batch, StepModel
from model_optimizer.planner.service import Limits

ROUNDS = 24
CLOSE = 1e-3
P99_OF_EXPONENTIAL = math.log(100)
SEARCH = 14
MOST = 1e6
Z99 = 2.33


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """The lengths of a load, in tokens; `output` is 0 where nothing is generated."""

    prompt: float
    prompt_p99: int
    output: float
    output_p99: int
    cached: int = 0
    texts: int = 1

    @property
    def context(self) -> float:
        """Tokens in the KV cache of a running request, in the mean."""
        return self.prompt + self.output / 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Steady:
    """One replica under a rate of requests. `running` decodes at once; `used` is the share of the token budget.

    `why` says what is full when it is saturated.
    """

    rate: float
    running: float = 0.0
    step_ms: float = 0.0
    ttft_ms: float = 0.0
    ttft_p99_ms: float = 0.0
    tpot_ms: float = 0.0
    tpot_p99_ms: float = 0.0
    e2e_ms: float = 0.0
    e2e_p99_ms: float = 0.0
    why: str | None = None


def shape_of(work: Workload, texts: int = 1) -> Shape:
    generates = work.task == "generate"
    cached = min(work.shared_prefix, int(work.prompt_tokens.mean) - 1)
    return Shape(
        prompt=work.prompt_tokens.mean,
        prompt_p99=work.prompt_tokens.quantile(0.99),
        output=work.output_tokens.mean if generates else 0.0,
        output_p99=work.output_tokens.quantile(0.99) if generates else 0,
        cached=max(0, cached),
        texts=texts,
    )


def at_rate(steps: StepModel, limits: Limits, shape: Shape, rate: float) -> Steady:
    """An open loop of `rate` requests a second."""
    fresh = max(1.0, shape.prompt - shape.cached)
    each = rate * shape.texts * 1e-3
    # From below: the time of a step grows with what is in it, so the first step that fits is the steady one.
    step = steps.mixed_ms(_batch(shape, min(1.0, shape.output), 0.0 if shape.output else 1.0))
    running = tokens = 0.0
    for _ in range(ROUNDS):
        running, tokens = each * shape.output * step, each * fresh * step
        full = _full(limits, shape, running, tokens)
        if full:
            return Steady(rate=rate, running=running, step_ms=step, why=full)
        after = steps.mixed_ms(_batch(shape, running, max(tokens, 1.0)))
        if after - step < CLOSE * step:
            break
        step = after
    return _times(steps, limits, shape, rate, running, step)


def at_concurrency(steps: StepModel, limits: Limits, shape: Shape, clients: float) -> Steady:
    """A closed loop of clients, each of which waits for its answer."""
    low, high = 0.0, 1.0
    while high < MOST and not _beyond(steps, limits, shape, high, clients):
        low, high = high, high * 2
    for _ in range(SEARCH):
        middle = (low + high) / 2
        if _beyond(steps, limits, shape, middle, clients):
            high = middle
        else:
            low = middle
    found = at_rate(steps, limits, shape, low or high / 2)
    if found.why:
        return found
    # A closed loop has no arrivals that pile up: the tail is that of lengths and of prompts of others.
    calm = found.ttft_ms + (found.ttft_p99_ms - found.ttft_ms) / 3
    return Steady(
        rate=found.rate,
        running=found.running,
        step_ms=found.step_ms,
        ttft_ms=found.ttft_ms,
        ttft_p99_ms=calm,
        tpot_ms=found.tpot_ms,
        tpot_p99_ms=found.tpot_p99_ms,
        e2e_ms=found.e2e_ms,
        e2e_p99_ms=found.e2e_p99_ms,
    )


def broken(found: Steady, slo: Slo) -> list[tuple[str, float, float]]:
    """The limits that do not hold: (name, what it is, what was asked). Saturation breaks all of them."""
    tail = slo.percentile > 75
    pairs = (
        ("ttft_ms", found.ttft_p99_ms if tail else found.ttft_ms, slo.ttft_ms),
        ("tpot_ms", found.tpot_p99_ms if tail else found.tpot_ms, slo.tpot_ms),
        ("e2e_ms", found.e2e_p99_ms if tail else found.e2e_ms, slo.e2e_ms),
    )
    return [(name, got, limit) for name, got, limit in pairs if limit is not None and got > limit]


def most(steps: StepModel, limits: Limits, shape: Shape, slo: Slo, *, closed: bool) -> float:
    """The largest rate (or number of clients) that one replica takes within the limits; 0 when none."""
    look = at_concurrency if closed else at_rate

    def holds(load: float) -> bool:
        found = look(steps, limits, shape, load)
        return found.why is None and not broken(found, slo)

    low, high = 0.0, 1.0 if closed else 0.05
    if not holds(high):
        if closed:
            return 0.0
        high, low = 0.05, 0.0
        if not holds(0.001):
            return 0.0
        low = 0.001
    else:
        while high < MOST and holds(high):
            low, high = high, high * 2
    for _ in range(SEARCH):
        middle = (low + high) / 2
        if holds(middle):
            low = middle
        else:
            high = middle
        if high - low < 0.01 * low:
            break
    return float(math.floor(low)) if closed else low


def _beyond(steps: StepModel, limits: Limits, shape: Shape, rate: float, clients: float) -> bool:
    found = at_rate(steps, limits, shape, rate)
    return found.why is not None or rate * found.e2e_ms * 1e-3 > clients


def _batch(shape: Shape, running: float, tokens: float) -> Batch:
    fresh = max(1.0, shape.prompt - shape.cached)
    return Batch(
        sequences=running if shape.output else 0.0,
        context=shape.context,
        tokens=tokens,
        chunks=tokens / fresh,
        pairs=tokens * (shape.cached + fresh / 2),
    )


def _full(limits: Limits, shape: Shape, running: float, tokens: float) -> str | None:
    if running + tokens > limits.max_num_batched_tokens:
        return f"the load needs more than {limits.max_num_batched_tokens:,} tokens a step"
    if running > limits.max_num_seqs:
        return f"more than {limits.max_num_seqs:,} requests would run at once"
    room = limits.kv_cache_tokens
    if shape.output and room is not None and running * shape.context > room:
        return f"the requests in flight need more than the {room:,} tokens of KV cache"
    return None


def _times(
    steps: StepModel, limits: Limits, shape: Shape, rate: float, running: float, step: float
) -> Steady:
    fresh = max(1.0, shape.prompt - shape.cached)
    budget = limits.max_num_batched_tokens
    own, own99 = (
        _prompt_ms(steps, shape, running, n, budget) for n in (fresh, shape.prompt_p99 - shape.cached)
    )
    plain = steps.mixed_ms(_batch(shape, running, 0.0)) if running else 0.0
    busy = min(0.99, rate * shape.texts * 1e-3 * max(0.0, own - plain))
    wait = busy / (1 - busy) * own / 2
    front = limits.frontend_ms + limits.frontend_token_us * shape.prompt * 1e-3
    ttft = front + step / 2 + wait + own
    ttft99 = front + step + P99_OF_EXPONENTIAL * wait + own99
    if not shape.output:
        # Texts of one request run beside each other; the slower one counts.
        more = 1 + 0.5 * (shape.texts - 1) * min(1.0, busy)
        e2e, e2e99 = front + (step / 2 + wait + own) * more, ttft99 * more
        return Steady(
            rate=rate,
            running=running,
            step_ms=step,
            ttft_ms=e2e,
            ttft_p99_ms=e2e99,
            e2e_ms=e2e,
            e2e_p99_ms=e2e99,
        )
    crowd = running + Z99 * math.sqrt(running)
    tokens = 1.3 * rate * 1e-3 * fresh * step
    tpot99 = max(step, steps.mixed_ms(_batch(shape, crowd, max(tokens, 1.0))))
    return Steady(
        rate=rate,
        running=running,
        step_ms=step,
        ttft_ms=ttft,
        ttft_p99_ms=ttft99,
        tpot_ms=step,
        tpot_p99_ms=tpot99,
        e2e_ms=ttft + step * max(0.0, shape.output - 1),
        e2e_p99_ms=ttft99 + tpot99 * max(0.0, shape.output_p99 - 1),
    )


def _prompt_ms(steps: StepModel, shape: Shape, running: float, tokens: float, budget: int) -> float:
    """From the first chunk of a prompt to its last, beside the running sequences."""
    room = max(1.0, budget - running)
    chunks = max(1, math.ceil(tokens / room))
    return chunks * steps.mixed_ms(_batch(shape, running, min(tokens, room)))

"""The steady state of one replica by a fixed point: quick enough to look at every candidate.

The service model in planner/service plays a load through event by event; this finds the mean batch that a
load leads to, and from it times, and is used to search. What is chosen is then played through.
"""

import math
from dataclasses import dataclass, replace

from model_optimizer.core import Slo, Workload
from model_optimizer.core.steps import Batch, StepModel
from model_optimizer.planner.service import Limits

ROUNDS = 24
CLOSE = 1e-3
P99_OF_EXPONENTIAL = math.log(100)
SEARCH = 14
NEAR = 0.01
LIGHT = 1e-3
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
    """One replica under a rate of requests. `running` is how many decode at once, in the mean.

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

    @property
    def in_flight(self) -> float:
        """Requests in the system, by Little's law."""
        return self.rate * self.e2e_ms * 1e-3


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
        after = _mean_step(steps, limits, shape, running, tokens)
        if after - step < CLOSE * step:
            break
        step = after
    return _times(steps, limits, shape, rate, running, step)


def _mean_step(steps: StepModel, limits: Limits, shape: Shape, running: float, tokens: float) -> float:
    """A mean step: prompts come whole, or in chunks as large as a step takes, and most steps hold none.

    `tokens` are those of prompts in a step, in the mean. Spread over all steps they would cost more: a step
    with a few of them reads as many experts as one with many.
    """
    chunk = min(max(1.0, shape.prompt - shape.cached), max(1.0, limits.max_num_batched_tokens - running))
    if not shape.output or tokens >= chunk:
        return steps.mixed_ms(_batch(shape, running, max(tokens, 1.0)))
    plain = steps.mixed_ms(_batch(shape, running, 0.0)) if running else 0.0
    return plain + tokens / chunk * (steps.mixed_ms(_batch(shape, running, chunk)) - plain)


def at_concurrency(steps: StepModel, limits: Limits, shape: Shape, clients: float) -> Steady:
    """A closed loop of clients, each waiting for its answer: the rate at which so many are in flight."""
    low, found = 0.0, Steady(rate=0.0)
    high, top = _bracket(steps, limits, shape, clients)
    for _ in range(SEARCH):
        middle = (low + high) / 2
        here = at_rate(steps, limits, shape, middle)
        if here.why is not None or here.in_flight > clients:
            high, top = middle, here
        else:
            low, found = middle, here
        if high - low < NEAR * high:
            break
    return replace(_calm(found), why=None) if found.rate else top


def _bracket(steps: StepModel, limits: Limits, shape: Shape, clients: float) -> tuple[float, Steady]:
    """A rate above the one that so many clients reach: as if each were alone."""
    alone = at_rate(steps, limits, shape, LIGHT)
    if alone.why is not None:
        return LIGHT, alone
    return 1.01 * clients / (alone.e2e_ms * 1e-3), alone


def _calm(found: Steady) -> Steady:
    """A closed loop has no arrivals that pile up: the tail is that of lengths and of prompts of others."""
    calm = found.ttft_ms + (found.ttft_p99_ms - found.ttft_ms) / 3
    return replace(found, ttft_p99_ms=calm)


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

    def held(rate: float) -> Steady | None:
        found = at_rate(steps, limits, shape, rate)
        if found.why is not None or broken(_calm(found) if closed else found, slo):
            return None
        return found

    low, best = LIGHT, held(LIGHT)
    if best is None:
        return 0.0
    high = min(MOST, 1e3 / best.e2e_ms)
    while high < MOST and (found := held(high)) is not None:
        low, best, high = high, found, high * 2
    for _ in range(SEARCH):
        if high - low < NEAR * low:
            break
        middle = (low + high) / 2
        found = held(middle)
        if found is None:
            high = middle
        else:
            low, best = middle, found
    return float(max(1, math.floor(best.in_flight))) if closed else low


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
    front = limits.frontend_ms + limits.frontend_token_us * shape.prompt * 1e-3
    if not shape.output:
        return _pooled(steps, limits, shape, rate, step, front)
    own, own99 = (
        _prompt_ms(steps, shape, running, n, budget) for n in (fresh, shape.prompt_p99 - shape.cached)
    )
    plain = steps.mixed_ms(_batch(shape, running, 0.0)) if running else 0.0
    busy = min(0.99, rate * 1e-3 * max(0.0, own - plain))
    wait = busy / (1 - busy) * own / 2
    ttft = front + step / 2 + wait + own
    ttft99 = front + step + P99_OF_EXPONENTIAL * wait + own99
    crowd = running + Z99 * math.sqrt(running)
    tokens = 1.3 * rate * 1e-3 * fresh * step
    tpot99 = max(step, _mean_step(steps, limits, shape, crowd, tokens))
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


def _pooled(steps: StepModel, limits: Limits, shape: Shape, rate: float, step: float, front: float) -> Steady:
    """Texts that arrive during a step are computed in the next: one sees one and a half steps, at most two.

    Steps grow with what has gathered: the crowded one holds what Poisson's law allows in one of a hundred.
    """
    texts = rate * shape.texts * 1e-3 * step
    crowd = texts + Z99 * math.sqrt(texts * shape.texts) + shape.texts
    tokens = min(crowd * shape.prompt, float(limits.max_num_batched_tokens))
    longest = steps.mixed_ms(_batch(shape, 0.0, max(tokens, float(shape.prompt_p99))))
    rounds = max(1.0, crowd * shape.prompt / limits.max_num_batched_tokens)
    mean, tail = front + 1.5 * step, front + step + rounds * longest
    return Steady(rate=rate, step_ms=step, ttft_ms=mean, ttft_p99_ms=tail, e2e_ms=mean, e2e_p99_ms=tail)


def _prompt_ms(steps: StepModel, shape: Shape, running: float, tokens: float, budget: int) -> float:
    """From the first chunk of a prompt to its last, beside the running sequences."""
    room = max(1.0, budget - running)
    whole, rest = divmod(tokens, room)
    last = steps.mixed_ms(_batch(shape, running, rest)) if rest or not whole else 0.0
    return (whole * steps.mixed_ms(_batch(shape, running, room)) if whole else 0.0) + last

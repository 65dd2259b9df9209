"""A scheduler for vLLM that chooses how many tokens each step may hold.

    PYTHONPATH=<this folder> vllm serve MODEL --scheduler-cls mopt_scheduler.AdaptiveScheduler

No source of vLLM is changed: the class sets `max_num_scheduled_tokens` before each step and leaves all else
to vLLM's own scheduler, with and without `--async-scheduling`. `--max-num-batched-tokens` stays the most that
a step may hold.

    MOPT_SCHEDULER_RULE      adaptive (default), lengths, or fixed (vLLM's own behaviour, for comparison)
    MOPT_SCHEDULER_TPOT_MS   the limit of the time per output token that `adaptive` keeps; without it, fixed
    MOPT_SCHEDULER_TTFT_MS   the limit of the time to the first token, 1000 where it is not given

`adaptive` learns how long a step takes by its prompt tokens and lets in as many as keep the mean step within
the limit: time that short steps save is spent on a long one. `lengths` is a rule that circulates: 4096 tokens
for prompts of under 128 tokens in the mean, 2048 under 512, 1024 above.
"""

import os
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

LEAST = 128
"""Never fewer tokens for prompts than this: below it a step is launch overhead. ASSUMED."""

START = 512
"""Tokens for prompts in a first step, of whose time nothing is known. ASSUMED."""

KEPT = 0.85
"""The share of the limit that steps aim at in the mean: what clients see is more than the step. ASSUMED."""

SAVED = 4.0
"""So many limits of time can be saved for a long step: 6 % of what 64 tokens may take. ASSUMED."""

FORGETS = 0.98
"""What an old step weighs beside the next one of its kind."""

STRANGE = 5.0
"""A step that took longer than so many times what was expected (a compilation) counts as this much."""

SETTLED = 8.0
"""Steps after which there is something to expect."""

WINDOW = 64
"""Prompts whose mean length the rule `lengths` looks at."""

TTFT_MS = 1000.0
RULES = ("adaptive", "lengths", "fixed")


@dataclass
class Sums:
    """What least squares need of steps, older ones fading."""

    weight: float = 0.0
    tokens: float = 0.0
    ms: float = 0.0
    squares: float = 0.0
    products: float = 0.0

    def add(self, tokens: int, ms: float) -> None:
        self.weight = FORGETS * self.weight + 1
        self.tokens = FORGETS * self.tokens + tokens
        self.ms = FORGETS * self.ms + ms
        self.squares = FORGETS * self.squares + tokens * tokens
        self.products = FORGETS * self.products + tokens * ms

    def __add__(self, other: "Sums") -> "Sums":
        return Sums(
            self.weight + other.weight,
            self.tokens + other.tokens,
            self.ms + other.ms,
            self.squares + other.squares,
            self.products + other.products,
        )


@dataclass
class StepTime:
    """Milliseconds of a step as `fixed + slope * prompt tokens`.

    Steps without prompts fade apart from those with some: a long stretch of answers alone would
    otherwise wipe out what a prompt token costs.
    """

    plain: Sums = field(default_factory=Sums)
    mixed: Sums = field(default_factory=Sums)

    def learn(self, tokens: int, ms: float) -> None:
        line = self.line()
        kind = self.mixed if tokens else self.plain
        if line is not None and kind.weight > SETTLED:
            ms = min(ms, STRANGE * (line[0] + line[1] * tokens))
        kind.add(tokens, ms)

    def line(self) -> "tuple[float, float] | None":
        """(ms of a step without prompts, ms a prompt token); None before any prompt was seen.

        All of it by tokens while nothing varied.
        """
        if not self.mixed.tokens:
            return None
        both = self.plain + self.mixed
        spread = both.squares - both.tokens**2 / both.weight
        if spread < 1e-6 * both.squares:
            return 0.0, both.ms / both.tokens
        slope = max(0.0, (both.products - both.tokens * both.ms / both.weight) / spread)
        return max(0.0, (both.ms - slope * both.tokens) / both.weight), slope


@dataclass
class Budget:
    """How many tokens the next step may hold, out of `most`."""

    most: int
    rule: str = "adaptive"
    tpot_ms: "float | None" = None
    ttft_ms: float = TTFT_MS
    steps: StepTime = field(default_factory=StepTime)
    lengths: "deque[int]" = field(default_factory=lambda: deque(maxlen=WINDOW))
    saved_ms: float = 0.0

    def tokens(self, decoding: int, waited_ms: float) -> int:
        """`decoding` tokens go to answers that grow; the oldest prompt has waited `waited_ms`."""
        if self.rule == "lengths":
            return min(self.most, self._by_lengths())
        if self.rule != "adaptive" or self.tpot_ms is None or not decoding:
            return self.most
        line = self.steps.line()
        if line is None:
            return min(self.most, decoding + START)
        fixed, slope = line
        if slope == 0:
            return self.most
        # What is kept back for surprises is given away as prompts come near their own limit.
        kept = KEPT + (1 - KEPT) * min(1.0, waited_ms / self.ttft_ms)
        room = (kept * self.tpot_ms + self.saved_ms - fixed) / slope
        return max(1, min(self.most, decoding + max(int(room), LEAST)))

    def took(self, decoding: int, prompts: int, ms: float) -> None:
        """A step with so many tokens for answers and for prompts is over."""
        self.steps.learn(prompts, ms)
        if self.tpot_ms is None:
            return
        most = SAVED * self.tpot_ms
        if not decoding:
            self.saved_ms = most
            return
        self.saved_ms = max(-most, min(most, self.saved_ms + KEPT * self.tpot_ms - ms))

    def _by_lengths(self) -> int:
        mean = sum(self.lengths) / len(self.lengths) if self.lengths else 0
        return 4096 if mean < 128 else 2048 if mean < 512 else 1024


def from_environment(most: int, environment: "Mapping[str, str]" = os.environ) -> Budget:
    """A limit that is no number counts as none. ValueError for a rule that there is not."""
    rule = environment.get("MOPT_SCHEDULER_RULE") or "adaptive"
    if rule not in RULES:
        raise ValueError(f"MOPT_SCHEDULER_RULE is `{rule}`; known: {', '.join(RULES)}")
    tpot = _limit(environment.get("MOPT_SCHEDULER_TPOT_MS"))
    ttft = _limit(environment.get("MOPT_SCHEDULER_TTFT_MS"))
    return Budget(most=most, rule=rule, tpot_ms=tpot, ttft_ms=ttft or TTFT_MS)


def _limit(text: "str | None") -> "float | None":
    try:
        found = float(text or "")
    except ValueError:
        return None
    return found if 0 < found < float("inf") else None


class Adaptive:
    """What both schedulers share; vLLM's class comes behind it in the order of inheritance."""

    def __init__(self, *args, **kwargs) -> None:
        super().__init__(*args, **kwargs)
        self._budget = from_environment(self.max_num_scheduled_tokens)
        self._begun: deque[tuple[float, int]] = deque()
        self._ended = 0.0

    def add_request(self, request) -> None:
        self._budget.lengths.append(request.num_prompt_tokens)
        super().add_request(request)

    def schedule(self, *args, **kwargs):
        answer = 1 + getattr(self, "num_spec_tokens", 0)
        growing = sum(1 for r in self.running if r.num_computed_tokens >= r.num_prompt_tokens)
        self.max_num_scheduled_tokens = self._budget.tokens(growing * answer, self._waited_ms())
        begun = time.monotonic()
        planned = super().schedule(*args, **kwargs)
        self._begun.append((begun, min(growing * answer, planned.total_num_scheduled_tokens)))
        return planned

    def update_from_output(self, scheduler_output, *args, **kwargs):
        """A step took from when it was planned, or from the end of the one before it, to now."""
        now = time.monotonic()
        begun, decoding = self._begun.popleft() if self._begun else (now, 0)
        if tokens := scheduler_output.total_num_scheduled_tokens:
            self._budget.took(decoding, tokens - decoding, (now - max(begun, self._ended)) * 1e3)
        self._ended = now
        return super().update_from_output(scheduler_output, *args, **kwargs)

    def _waited_ms(self) -> float:
        """Of the prompt that is next; one that is being read counts as long as it is not done."""
        reading = (r for r in self.running if r.num_computed_tokens < r.num_prompt_tokens)
        first = next(reading, None) or next(iter(self.waiting), None)
        return 0.0 if first is None else max(0.0, (time.time() - first.arrival_time) * 1e3)


class AdaptiveScheduler:
    """What `--scheduler-cls` names: on top of vLLM's scheduler that fits how steps are issued."""

    def __new__(cls, vllm_config, *args, **kwargs):
        asynchronous = bool(vllm_config.scheduler_config.async_scheduling)
        return _made(asynchronous)(vllm_config, *args, **kwargs)


def _made(asynchronous: bool) -> type:
    """vLLM's classes are imported only when one is needed, so that the rules are tested alone."""
    if asynchronous:
        from vllm.v1.core.sched.async_scheduler import AsyncScheduler as Own
    else:
        from vllm.v1.core.sched.scheduler import Scheduler as Own
    return type("AdaptiveScheduler", (Adaptive, Own), {"__module__": __name__})

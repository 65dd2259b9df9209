"""A scheduler for vLLM that chooses how many tokens each step may hold.

    PYTHONPATH=<this folder> vllm serve MODEL --scheduler-cls mopt_scheduler.AdaptiveScheduler

No source of vLLM is changed: the class sets `max_num_scheduled_tokens` before each step and leaves all else
to vLLM's own scheduler. `--max-num-batched-tokens` stays the most that a step may hold.

    MOPT_SCHEDULER_RULE      adaptive (default), lengths, or fixed (vLLM's own behaviour, for comparison)
    MOPT_SCHEDULER_TPOT_MS   the limit of the time per output token that `adaptive` keeps; without it, fixed

`adaptive` learns how long a step takes by its tokens and lets in as many prompt tokens as the limit leaves
room for, more when prompts have waited long. `lengths` is a rule that circulates: 4096 tokens for prompts
of under 128 tokens in the mean, 2048 under 512, 1024 above.
"""

import os
import time
from collections import deque
from dataclasses import dataclass, field

LEAST = 128
"""Never fewer tokens for prompts than this: below it a step is launch overhead. ASSUMED."""

START = 512
"""Tokens for prompts in a first step, of whose time nothing is known. ASSUMED."""

KEPT = 0.85
"""The share of the limit that a step aims at: its time varies around what is learned. ASSUMED."""

FORGETS = 0.98
"""What an old step weighs beside the next one."""

WINDOW = 64
"""Prompts whose mean length the rule `lengths` looks at."""


@dataclass
class StepTime:
    """Milliseconds of a step as `fixed + slope * tokens`, by least squares that forgets."""

    weight: float = 0.0
    tokens: float = 0.0
    ms: float = 0.0
    tokens_squared: float = 0.0
    product: float = 0.0

    def learn(self, tokens: int, ms: float) -> None:
        for name, value in (
            ("weight", 1.0), ("tokens", tokens), ("ms", ms), ("tokens_squared", tokens * tokens),
            ("product", tokens * ms),
        ):  # fmt: skip
            setattr(self, name, FORGETS * getattr(self, name) + value)

    def line(self) -> tuple[float, float] | None:
        """(fixed ms, ms a token); all of it by tokens while nothing varied, None before the first step."""
        if not self.tokens:
            return None
        spread = self.tokens_squared - self.tokens**2 / self.weight
        if spread < 1e-6 * self.tokens_squared:
            return 0.0, self.ms / self.tokens
        slope = max(0.0, (self.product - self.tokens * self.ms / self.weight) / spread)
        return max(0.0, (self.ms - slope * self.tokens) / self.weight), slope


@dataclass
class Budget:
    """How many tokens the next step may hold, out of `most`."""

    most: int
    rule: str = "adaptive"
    tpot_ms: float | None = None
    steps: StepTime = field(default_factory=StepTime)
    lengths: deque[int] = field(default_factory=lambda: deque(maxlen=WINDOW))

    def tokens(self, decoding: int, waiting_tokens: int, waited_ms: float) -> int:
        """`decoding` answers grow by a token each; `waiting_tokens` of prompts wait, the oldest since
        `waited_ms`.
        """
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
        room = (KEPT * self.tpot_ms - fixed) / slope
        # A prompt that waited ten times the limit is let in faster, up to twice as many tokens.
        impatience = min(1.0, waited_ms / (100 * self.tpot_ms))
        wanted = max(room * (1 + impatience), decoding + LEAST)
        return max(1, min(self.most, int(wanted)))

    def _by_lengths(self) -> int:
        mean = sum(self.lengths) / len(self.lengths) if self.lengths else 0
        return 4096 if mean < 128 else 2048 if mean < 512 else 1024


def from_environment(most: int, environment: "os._Environ[str] | dict[str, str]" = os.environ) -> Budget:
    """A limit that is no number counts as none."""
    text = environment.get("MOPT_SCHEDULER_TPOT_MS", "")
    try:
        limit = float(text) if text else None
    except ValueError:
        limit = None
    rule = environment.get("MOPT_SCHEDULER_RULE", "adaptive")
    return Budget(most=most, rule=rule, tpot_ms=limit if limit is None or limit > 0 else None)


class Adaptive:
    """What both schedulers share; vLLM's class comes behind it in the order of inheritance."""

    def __init__(self, *args, **kwargs) -> None:
        super().__init__(*args, **kwargs)
        self._budget = from_environment(self.max_num_scheduled_tokens)
        self._begun: deque[float] = deque()
        self._ended = 0.0
        self._seen: set[str] = set()

    def schedule(self, *args, **kwargs):
        now = time.monotonic()
        decoding = sum(1 for r in self.running if r.num_computed_tokens >= r.num_prompt_tokens)
        left, oldest = self._waiting()
        self.max_num_scheduled_tokens = self._budget.tokens(decoding, left, oldest)
        self._begun.append(now)
        return super().schedule(*args, **kwargs)

    def update_from_output(self, scheduler_output, *args, **kwargs):
        """A step took from when it was planned, or from the end of the one before it, to now."""
        now = time.monotonic()
        begun = self._begun.popleft() if self._begun else now
        tokens = scheduler_output.total_num_scheduled_tokens
        if tokens:
            self._budget.steps.learn(tokens, (now - max(begun, self._ended)) * 1e3)
        self._ended = now
        return super().update_from_output(scheduler_output, *args, **kwargs)

    def _waiting(self) -> tuple[int, float]:
        """(prompt tokens that wait, ms since the oldest of them came)."""
        left = sum(max(0, r.num_prompt_tokens - r.num_computed_tokens) for r in self.running)
        oldest = 0.0
        for request in self.waiting:
            left += request.num_prompt_tokens
            self._note(request)
            oldest = max(oldest, (time.time() - request.arrival_time) * 1e3)
        return left, oldest

    def _note(self, request) -> None:
        if request.request_id in self._seen:
            return
        if len(self._seen) > 16 * WINDOW:
            self._seen.clear()
        self._seen.add(request.request_id)
        self._budget.lengths.append(request.num_prompt_tokens)


def __getattr__(name: str):
    """vLLM's classes are imported only when one of ours is asked for, so that the rules are tested alone."""
    if name == "AdaptiveScheduler":
        from vllm.v1.core.sched.async_scheduler import AsyncScheduler as Own
    elif name == "AdaptiveSyncScheduler":
        from vllm.v1.core.sched.scheduler import Scheduler as Own
    else:
        raise AttributeError(name)
    made = globals()[name] = type(name, (Adaptive, Own), {"__module__": __name__})
    return made

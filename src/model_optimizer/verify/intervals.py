"""How sure a number is: 95 % intervals, and how many more samples would settle a question.

The samples of one text hang together, so every interval here treats the text, not the token, as the unit
of sampling. All of it is arithmetic on plain numbers.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import NormalDist

from model_optimizer.core.verdict import Outcome

CONFIDENCE = 0.95
Z = NormalDist().inv_cdf(0.5 + CONFIDENCE / 2)
LARGEST = 10**9


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """An estimate with the ends of its 95 % interval, from `texts` texts."""

    estimate: float
    low: float
    high: float
    texts: int

    @property
    def ends(self) -> tuple[float, float]:
        return (self.low, self.high)


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """`more_texts` is how many further texts would decide: 0 once decided, None when no number would."""

    outcome: Outcome
    more_texts: int | None = 0


def decide(interval: Interval, gate: float, more: Callable[[], int | None]) -> Decision:
    """Pass when the whole interval reaches the gate, fail when all of it lies below, else undecided."""
    if interval.low >= gate:
        return Decision(outcome="pass")
    if interval.high < gate:
        return Decision(outcome="fail")
    return Decision(outcome="undecided", more_texts=more())


def wilson(successes: float, trials: float, z: float = Z) -> tuple[float, float]:
    """Wilson's score interval of a proportion. Whole [0, 1] when nothing was tried."""
    if trials <= 0:
        return (0.0, 1.0)
    share = successes / trials
    centre = (share + z * z / (2 * trials)) / (1 + z * z / trials)
    half = z / (1 + z * z / trials) * math.sqrt(share * (1 - share) / trials + (z / (2 * trials)) ** 2)
    # At the ends the formula is exactly 0 or 1; rounding must not turn a perfect score into less.
    low = 0.0 if successes <= 0 else max(0.0, centre - half)
    high = 1.0 if successes >= trials else min(1.0, centre + half)
    return (low, high)


def design_effect(counts: Sequence[tuple[float, float]]) -> float:
    """How many times wider a proportion varies than if all trials were independent, at least 1.

    `counts` holds (successes, trials) of each text. Errors that cluster in a few texts count for less
    than errors spread evenly.
    """
    kept = [(s, n) for s, n in counts if n > 0]
    total = sum(n for _, n in kept)
    share = sum(s for s, _ in kept) / total if total else 0.0
    if len(kept) < 2 or not 0 < share < 1:
        return 1.0
    between = sum((s - share * n) ** 2 for s, n in kept) * len(kept) / (len(kept) - 1) / total**2
    return max(1.0, between / (share * (1 - share) / total))


def proportion(counts: Sequence[tuple[float, float]]) -> Interval:
    """Wilson's interval over texts of (successes, trials), widened by their design effect."""
    trials = sum(n for _, n in counts)
    successes = sum(s for s, _ in counts)
    effect = design_effect(counts)
    low, high = wilson(successes / effect, trials / effect)
    estimate = successes / trials if trials else 0.0
    return Interval(estimate=estimate, low=low, high=high, texts=len(counts))


def decide_proportion(counts: Sequence[tuple[float, float]], gate: float) -> Decision:
    """Whether a proportion reaches the gate, and how many more texts of the same kind would tell."""
    found = proportion(counts)

    def more() -> int | None:
        trials = sum(n for _, n in counts)
        if not trials:
            return None
        wanted = _trials_needed(found.estimate, gate)
        if wanted is None:
            return None
        texts = math.ceil(wanted * design_effect(counts) / (trials / len(counts)))
        return max(1, texts - len(counts))

    return decide(found, gate, more)


def _trials_needed(share: float, gate: float) -> int | None:
    """The fewest independent trials after which Wilson's interval at this share clears the gate."""

    def clears(trials: int) -> bool:
        low, high = wilson(share * trials, trials)
        return low >= gate if share > gate else high < gate

    if share == gate or not clears(LARGEST):
        return None
    few, many = 0, 1
    while not clears(many):
        few, many = many, many * 2
    while many - few > 1:
        middle = (few + many) // 2
        few, many = (few, middle) if clears(middle) else (middle, many)
    return many


def student(texts: int) -> float:
    """The 97.5 % point of Student's t for a mean over `texts` samples (Cornish-Fisher, 3 terms).

    Within 2 % of the exact value from 6 samples on; infinite below 2.
    """
    if texts < 2:
        return math.inf
    n = texts - 1
    first = (Z**3 + Z) / 4
    second = (5 * Z**5 + 16 * Z**3 + 3 * Z) / 96
    third = (3 * Z**7 + 19 * Z**5 + 17 * Z**3 - 15 * Z) / 384
    return Z + first / n + second / n**2 + third / n**3


def ratio(parts: Sequence[tuple[float, float]]) -> Interval:
    """The sum of the first numbers over the sum of the second, a pair a text (linearised variance).

    With (total over a text, number of tokens) it is a mean a token whose interval knows that the tokens
    of a text hang together.
    """
    weight = sum(n for _, n in parts)
    if not weight:
        return Interval(estimate=0.0, low=-math.inf, high=math.inf, texts=len(parts))
    estimate = sum(x for x, _ in parts) / weight
    if len(parts) < 2:
        return Interval(estimate=estimate, low=-math.inf, high=math.inf, texts=len(parts))
    squares = sum((x - estimate * n) ** 2 for x, n in parts)
    half = student(len(parts)) * math.sqrt(squares * len(parts) / (len(parts) - 1)) / weight
    return Interval(estimate=estimate, low=estimate - half, high=estimate + half, texts=len(parts))


def mean(values: Sequence[float]) -> Interval:
    """The mean of one value a text."""
    return ratio([(value, 1.0) for value in values])


def decide_mean(interval: Interval, gate: float) -> Decision:
    """Whether a mean reaches the gate. The interval narrows with the root of the number of texts."""

    def more() -> int | None:
        distance = abs(interval.estimate - gate)
        half = (interval.high - interval.low) / 2
        if not distance or not math.isfinite(half):
            return None if not distance else interval.texts
        return max(1, math.ceil(interval.texts * (half / distance) ** 2) - interval.texts)

    return decide(interval, gate, more)


def exponential(interval: Interval) -> Interval:
    """The same interval after `exp`: from a mean log-probability to a perplexity or a ratio of two."""

    def exp(value: float) -> float:
        return math.exp(value) if value < 700 else math.inf

    return Interval(
        estimate=exp(interval.estimate),
        low=exp(interval.low),
        high=exp(interval.high),
        texts=interval.texts,
    )


def percentile(values: Sequence[float], share: float) -> float:
    """The value that a `share` (0 to 1) of all values stays at or below (nearest rank)."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]

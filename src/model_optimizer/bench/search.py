"""Which levels to try: the most that meets the SLO, and a sweep. Nothing here drives a load itself."""

import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from model_optimizer.core import LoadPoint
from model_optimizer.core.measurement import Capacity, Trial

from .intervals import wilson

_Z2 = 3.8415
_OPEN_LOOP_S = 10.0  # a queue needs time to grow
_GAIN = 1.03
_MOST_TRIALS = 40
_AGAIN = 2  # how often a level that chance leaves open is run again
_SMALLEST_RATE = 1 / 1024  # of the first rate


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """What one run of one level said: how many requests met every limit, of how many."""

    met: int
    total: int
    kept_up: bool = True
    aborted: bool = False
    interrupted: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Quest:
    """Looked for: the highest level at which `share` of the requests meet the limits. Levels are `whole`
    (users) or rates; the answer is wanted to within `resolution` of itself."""

    share: float
    first: float
    whole: bool
    limit: float = math.inf
    resolution: float = 0.05


def requests_needed(share: float, level: float, *, is_open: bool) -> int:
    """So many that, when all of them meet the limits, Wilson's interval lies above the share; and at least
    some for each user, or some seconds of an open loop."""
    least = math.ceil(_Z2 * share / (1 - share)) + 1
    return max(least, 32, math.ceil((_OPEN_LOOP_S if is_open else 4) * level))


class _Interrupted(Exception):
    pass


async def find_max(quest: Quest, probe: Callable[[float], Awaitable[Probe]]) -> Capacity:
    """Double (or halve, when the first level misses) until one meets and the next misses, then bisect."""
    trials: dict[float, Trial] = {}

    async def attempt(level: float) -> Trial:
        met = total = 0
        for _ in range(1 + _AGAIN):
            one = await probe(level)
            met, total = met + one.met, total + one.total
            trials[level] = trial = _trial(quest, level, met, total, one)
            if one.interrupted:
                raise _Interrupted
            if _decided(quest, trial):
                break
        return trials[level]

    best: float | None = None
    above: float | None = None
    ended = ""
    try:
        best, above = await _bracket(quest, attempt)
        while best is not None and above is not None and len(trials) < _MOST_TRIALS:
            middle = _between(quest, best, above)
            if middle is None:
                break
            if (await attempt(middle)).meets:
                best = middle
            else:
                above = middle
    except _Interrupted:
        ended = "it was interrupted"
        best = max((t.level for t in trials.values() if t.meets), default=None)
        above = min((t.level for t in trials.values() if not t.meets), default=None)
    because = ended or _open_question(quest, best, above, trials)
    return Capacity(
        axis="concurrency" if quest.whole else "requests/s",
        best=best,
        above=above,
        resolved=not because,
        because=because or "the intervals on either side exclude chance",
        share=quest.share,
        trials=tuple(trials[level] for level in sorted(trials)),
    )


async def _bracket(
    quest: Quest, attempt: Callable[[float], Awaitable[Trial]]
) -> tuple[float | None, float | None]:
    level, best, above = min(quest.first, quest.limit), None, None
    smallest = 1.0 if quest.whole else quest.first * _SMALLEST_RATE
    while True:
        if (await attempt(level)).meets:
            best = level
            if above is not None or level >= quest.limit:
                return best, above
            level = min(quest.limit, level * 2)
        else:
            above = level
            if best is not None or level <= smallest:
                return best, above
            level = max(smallest, level // 2 if quest.whole else level / 2)


def _between(quest: Quest, best: float, above: float) -> float | None:
    if above <= best * (1 + quest.resolution):
        return None
    if not quest.whole:
        return math.sqrt(best * above)
    middle = (best + above) // 2
    return middle if best < middle < above else None


def _trial(quest: Quest, level: float, met: int, total: int, last: Probe) -> Trial:
    meets = total > 0 and met / total >= quest.share and last.kept_up and not last.aborted
    return Trial(
        level=level,
        met=met,
        total=total,
        interval=wilson(met, total),
        meets=meets,
        kept_up=last.kept_up,
        aborted=last.aborted,
    )


def _decided(quest: Quest, trial: Trial) -> bool:
    """Whether chance can be excluded."""
    low, high = trial.interval
    return trial.aborted or not trial.kept_up or low >= quest.share or high < quest.share


def _open_question(
    quest: Quest, best: float | None, above: float | None, trials: dict[float, Trial]
) -> str | None:
    if best is None:
        lowest = trials[min(trials)]
        return None if _decided(quest, lowest) else "even the lowest level is too close to the limit to tell"
    if above is None:
        return "no level that was tried missed the limits: the search ended at its own limit"
    close = [t.level for t in (trials[best], trials[above]) if not _decided(quest, t)]
    if close:
        places = " and ".join(f"{level:g}" for level in close)
        return f"chance cannot be excluded at {places}: more requests would tell"
    if _between(quest, best, above) is not None:
        return f"more than {_MOST_TRIALS} levels would have been needed"
    return None


def worth_more(points: Sequence[LoadPoint]) -> bool:
    """Whether the next doubling of a sweep is worth trying: it is not after one that gained less than 3 %,
    where most requests failed, or where the queue of an open loop grew."""
    last = points[-1]
    if last.aborted or last.failed > last.completed or (last.start == "scheduled" and last.steady is False):
        return False
    if len(points) < 2:
        return True
    before, now = throughput(points[-2]), throughput(last)
    return before is None or now is None or now > _GAIN * before


def throughput(point: LoadPoint) -> float | None:
    return point.output_tokens_per_s or point.requests_per_s


def pareto(points: Sequence[LoadPoint]) -> tuple[str, ...]:
    """Names of the points that no other one beats in throughput and median latency at once."""
    known = [(p, t, p.e2e_ms.p50) for p in points if (t := throughput(p)) is not None]
    kept: list[str] = []
    for point, rate, latency in known:
        if latency is None:
            continue
        beaten = any(
            r >= rate and e is not None and e <= latency and (r > rate or e < latency)
            for other, r, e in known
            if other is not point
        )
        if not beaten:
            kept.append(point.target)
    return tuple(kept)

"""Where latency stops depending on how the load began, and whether it stayed there.

The beginning is found by the marginal standard error rule (White, 1997, with batches of five): of all
points to begin at, the one that makes the standard error of what remains smallest. It is only believed where
what it leaves out is plainly different.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, variance

_BATCH = 5
_LEAST = 100  # requests before anything is said
_NEARLY = 1.25
_PLAIN = 4.0  # standard errors
_SHARE = 0.10  # a change of latency that matters


@dataclass(frozen=True, slots=True, kw_only=True)
class Steadiness:
    """`skip` requests at the beginning belong to the start of the load. `steady` None: too few to tell.

    `drift` is by what share the mean of the second half of the rest lies above that of the first.
    """

    skip: int = 0
    steady: bool | None = None
    drift: float | None = None
    because: str = "too few requests to tell"


def judge(latencies_ms: Sequence[float]) -> Steadiness:
    """Latencies in the order in which their requests began."""
    if len(latencies_ms) < _LEAST:
        return Steadiness()
    batches = [fmean(latencies_ms[i : i + _BATCH]) for i in range(0, len(latencies_ms) - _BATCH + 1, _BATCH)]
    cut = _truncation(batches)
    if cut and not _differ(batches[:cut], batches[cut:]):
        cut = 0
    kept = batches[cut:]
    half = len(kept) // 2
    first, second = kept[:half], kept[half:]
    drift = fmean(second) / fmean(first) - 1 if fmean(first) > 0 else 0.0
    if abs(drift) > _SHARE and _differ(first, second):
        way = "rose" if drift > 0 else "fell"
        because = f"latency {way} by {abs(drift):.0%} from the first half of the window to the second"
        return Steadiness(skip=cut * _BATCH, steady=False, drift=drift, because=because)
    because = f"latency stayed the same (the second half differs by {drift:+.1%})"
    return Steadiness(skip=cut * _BATCH, steady=True, drift=drift, because=because)


def _truncation(batches: Sequence[float]) -> int:
    """The number of batches to leave out; 0 when the rule finds none in the first half.

    Of points that are nearly as good as the best one it takes the earliest: the error of what remains is
    itself a matter of chance, and the later ones leave out more than they need to.
    """
    count = len(batches)
    errors = [math.inf] * (count // 2 + 1)
    total = squares = 0.0
    for place in range(count - 1, -1, -1):  # from the end, so that sums grow instead of being made again
        total += batches[place]
        squares += batches[place] ** 2
        kept = count - place
        if place < len(errors):
            errors[place] = max(0.0, squares - total * total / kept) / (kept * kept)
    enough = _NEARLY * min(errors)
    place = next(place for place, error in enumerate(errors) if error <= enough)
    return 0 if place >= count // 2 else place


def _differ(first: Sequence[float], second: Sequence[float]) -> bool:
    """Whether two means differ by more than chance, and by enough to matter."""
    gap = abs(fmean(first) - fmean(second))
    spread = sum((variance(part) if len(part) > 1 else 0.0) / len(part) for part in (first, second))
    if len(first) == 1 or len(second) == 1:
        long = first if len(first) > 1 else second
        spread += variance(long)
    return gap > _PLAIN * math.sqrt(spread) and gap > _SHARE * fmean(second)

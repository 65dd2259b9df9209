"""What a reader of a study has to know of its loads: too short to be precise, or short of KV cache."""

import math
from collections.abc import Iterator, Sequence

from model_optimizer.core import LoadPoint
from model_optimizer.core.study import FinalRun, Study, Trial

WAVES = 3.0
"""So many of the longest answers must fit into a load one after the other. ASSUMED."""


def cautions(study: Study) -> tuple[str, ...]:
    """One line for each thing, with its worst case."""
    measured = [t for t in study.trials if t.state == "measured"]
    return tuple(text for text in (_in_step(measured, study.final_runs), _preempted(study)) if text)


def waves(point: LoadPoint) -> float | None:
    """How many of its longest answers a load held one after the other; None for an open loop, or unknown."""
    times = point.e2e_ms
    longest = next((t for t in (times.p99, times.p90, times.mean) if t is not None), None)
    if point.concurrency is None or not longest or point.window_s <= 0:
        return None
    return point.window_s * 1000 / longest


def _in_step(trials: Sequence[Trial], runs: Sequence[FinalRun]) -> str | None:
    found = [
        (count, point, shape)
        for one in (*trials, *runs)
        for point, shape in _points(one)
        if (count := waves(point)) is not None
    ]
    if not found:
        return None
    least, point, shape = min(found, key=lambda f: f[0])
    if least >= WAVES:
        return None
    enough = math.ceil(point.window_s * WAVES / least)
    where = f"{point.target}, {shape}" if shape else point.target
    return (
        f"a load of {point.window_s:.3g} s holds only {least:.1f} of its longest answers one after the other "
        f"({where}): clients that finish in step make rates that come in steps, and intervals that promise "
        f"too much; `--for {enough}s` would hold {WAVES:.0f}"
    )


def _points(one: Trial | FinalRun) -> Iterator[tuple[LoadPoint, str]]:
    return zip(one.points, one.shapes or ("",) * len(one.points), strict=False)


def _preempted(study: Study) -> str | None:
    """Of servers that stood by others: alone, what the KV cache is worth is part of what is measured."""
    shared = [one for one in (*study.trials, *study.final_runs) if one.beside]
    hit = [one for one in shared if one.preemptions]
    if not hit:
        return None
    count = sum(one.preemptions or 0 for one in hit)
    return (
        f"{count} requests lost their place in the KV cache, in {len(hit)} of {len(shared)} loads of servers "
        "that stood by each other: the KV cache that they share is too small for the load; "
        "`--second-look restart` gives each arm all of it"
    )

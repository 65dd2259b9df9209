"""Cross-encoders: the scores of two models for the same queries and documents."""

import math
from collections.abc import Sequence
from itertools import combinations
from statistics import pstdev

from model_optimizer.core import Gate

from .intervals import Decision, Interval, Z, decide, proportion
from .judged import Judged, drifted, gated, gated_share, reported, wrong
from .limits import NEAR
from .numeric import drift
from .outputs import Outputs

Groups = Sequence[Sequence[int]]
"""The rows of each query's documents."""


def judge(pairs: Sequence[tuple[Outputs, Outputs]], groups: Groups, gate: Gate) -> tuple[Judged, ...]:
    """Every comparison of two cross-encoders; with several labels, of the one that differs most.

    A value that is not finite leaves nothing else to compare.
    """
    wanted = [reference.row("scores", i) for reference, _ in pairs for i in range(reference.texts)]
    got = [candidate.row("scores", i) for _, candidate in pairs for i in range(candidate.texts)]
    broken = _not_finite("reference", wanted) or _not_finite("candidate", got)
    if broken:
        return (broken,)
    if len(wanted[0]) != len(got[0]):
        return (_other_labels(wanted, got),)
    label = min(
        range(len(wanted[0])), key=lambda at: correlation([w[at] for w in wanted], [g[at] for g in got])
    )
    before, after = [w[label] for w in wanted], [g[label] for g in got]
    drifts = [drift(a, b, pairs[0][1].dtype) for a, b in zip(got, wanted, strict=True)]
    return (
        _correlation(before, after, len(groups), gate),
        *_order(before, after, groups, gate),
        drifted("scores_ulp", drifts, pairs[0][1]),
    )


def _not_finite(name: str, scores: Sequence[Sequence[float]]) -> Judged | None:
    bad = [i for i, row in enumerate(scores) if not all(map(math.isfinite, row))]
    if not bad:
        return None
    return wrong(
        "finite",
        1 - len(bad) / len(scores),
        "= 1",
        where=f"{name}, pair {bad[0] + 1}",
        samples=len(scores),
        because=f"{len(bad)} of {len(scores)} scores of the {name} are NaN or infinite",
    )


def _other_labels(wanted: Sequence[Sequence[float]], got: Sequence[Sequence[float]]) -> Judged:
    return wrong(
        "labels",
        len(got[0]),
        f"= {len(wanted[0])}",
        where="scores of a pair",
        samples=len(got),
        because="the candidate gives another number of scores than the reference",
    )


def correlation(a: Sequence[float], b: Sequence[float]) -> float:
    """Pearson's correlation: the cosine of the scores about their means. 0 where one does not vary."""
    centre_a, centre_b = math.fsum(a) / len(a), math.fsum(b) / len(b)
    up = math.fsum((x - centre_a) * (y - centre_b) for x, y in zip(a, b, strict=True))
    spread_a = math.fsum((x - centre_a) ** 2 for x in a)
    spread_b = math.fsum((y - centre_b) ** 2 for y in b)
    return up / math.sqrt(spread_a * spread_b) if spread_a > 0 and spread_b > 0 else 0.0


def _correlation(before: Sequence[float], after: Sequence[float], queries: int, gate: Gate) -> Judged:
    """The correlation against the gate of cosines, with Fisher's interval over queries."""
    found = max(-1.0, min(1.0, correlation(before, after)))
    interval = _fisher(found, queries)

    def more() -> int | None:
        for factor in range(2, 65):
            wider = _fisher(found, queries * factor)
            if decide(wider, gate.cosine, lambda: None).outcome != "undecided":
                return queries * (factor - 1)
        return None

    decision: Decision = decide(interval, gate.cosine, more)
    return gated(
        "score_correlation", interval, gate.cosine, decision, where="of all scores", samples=len(before)
    )


def _fisher(found: float, samples: int) -> Interval:
    """Fisher's interval of a correlation; the scores of one query count as one sample."""
    if samples <= 3:
        return Interval(estimate=found, low=-1.0, high=1.0, texts=samples)
    if abs(found) >= 1:
        return Interval(estimate=found, low=found, high=found, texts=samples)
    half = Z / math.sqrt(samples - 3)
    middle = math.atanh(found)
    return Interval(
        estimate=found, low=math.tanh(middle - half), high=math.tanh(middle + half), texts=samples
    )


def _order(before: Sequence[float], after: Sequence[float], groups: Groups, gate: Gate) -> tuple[Judged, ...]:
    """Whether two documents of a query keep their order; where the reference hardly prefers one, apart."""
    near = NEAR * pstdev(before)
    clear: list[tuple[float, float]] = []
    tied: list[tuple[float, float]] = []
    for rows in groups:
        kept = {False: [0, 0], True: [0, 0]}
        for i, j in combinations(rows, 2):
            gap = before[i] - before[j]
            count = kept[abs(gap) <= near]
            count[0] += (gap > 0) == (after[i] > after[j])
            count[1] += 1
        clear.append((kept[False][0], kept[False][1]))
        tied.append((kept[True][0], kept[True][1]))
    tries, tied_tries = int(sum(n for _, n in clear)), int(sum(n for _, n in tied))
    lost = round(tries - sum(s for s, _ in clear))
    where = f"{lost} of {tries} pairs of documents change their order"
    moved = max(abs(x - y) for x, y in zip(before, after, strict=True))
    fixed = f"no score moves by more than {moved:.1g}, which cannot change a clear order"
    cannot_change = fixed if 2 * moved < near else None
    found = gated_share("score_order", clear, gate.rank, where=where, cannot_change=cannot_change)
    if not tied_tries:
        return (found,)
    apart = f"pairs of documents within {near:.2g} in the reference"
    return (found, reported("score_order_near_ties", proportion(tied), samples=tied_tries, where=apart))

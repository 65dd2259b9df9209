"""Embedding models: the vectors of two models for the same texts, and whom each finds nearest."""

import math
from collections.abc import Sequence
from operator import mul
from statistics import pstdev

from model_optimizer.core import Gate

from .intervals import decide_mean, mean, percentile, proportion
from .judged import Judged, drifted, gated, gated_share, reported, wrong
from .limits import NEAR
from .numeric import drift
from .outputs import Outputs

WORK = 40_000_000
"""Multiplications that the search for neighbours may take: it bounds the texts that are searched."""

Vector = Sequence[float]


def judge(pairs: Sequence[tuple[Outputs, Outputs]], gate: Gate) -> tuple[Judged, ...]:
    """Every comparison of two embedding models. A value that is not finite leaves nothing else to compare."""
    wanted = [reference.row("vectors", i) for reference, _ in pairs for i in range(reference.texts)]
    got = [candidate.row("vectors", i) for _, candidate in pairs for i in range(candidate.texts)]
    broken = _not_finite("reference", wanted) or _not_finite("candidate", got)
    if broken:
        return (broken,)
    if len(wanted[0]) != len(got[0]):
        return (_other_size(wanted, got),)
    # Lengths say nothing about direction; rows are compared at length 1, as a search index does.
    units_wanted, units_got = [unit(v) for v in wanted], [unit(v) for v in got]
    cosines = [dot(a, b) for a, b in zip(units_wanted, units_got, strict=True)]
    drifts = [drift(a, b, pairs[0][1].dtype) for a, b in zip(units_got, units_wanted, strict=True)]
    return (
        *_cosine(cosines, gate),
        *_rank(units_wanted, units_got, gate),
        drifted("vectors_ulp", drifts, pairs[0][1]),
    )


def _not_finite(name: str, vectors: Sequence[Vector]) -> Judged | None:
    bad = [i for i, v in enumerate(vectors) if not all(map(math.isfinite, v)) or not any(v)]
    if not bad:
        return None
    return wrong(
        "finite",
        1 - len(bad) / len(vectors),
        "= 1",
        where=f"{name}, text {bad[0] + 1}",
        samples=len(vectors),
        because=f"{len(bad)} of {len(vectors)} vectors of the {name} hold NaN or infinity, or are all zero",
    )


def _other_size(wanted: Sequence[Vector], got: Sequence[Vector]) -> Judged:
    return wrong(
        "dimensions",
        len(got[0]),
        f"= {len(wanted[0])}",
        where="length of a vector",
        samples=len(got),
        because="the candidate's vectors have another length than the reference's",
    )


def unit(vector: Vector) -> list[float]:
    """The same direction at length 1."""
    length = math.sqrt(dot(vector, vector))
    return [x / length for x in vector]


def dot(a: Vector, b: Vector) -> float:
    """The sum of products."""
    return sum(map(mul, a, b))


def _cosine(cosines: Sequence[float], gate: Gate) -> tuple[Judged, ...]:
    found = mean(cosines)
    least = min(range(len(cosines)), key=cosines.__getitem__)
    where = f"least {cosines[least]:.4g}, text {least + 1}"
    return (
        gated(
            "cosine", found, gate.cosine, decide_mean(found, gate.cosine), where=where, samples=len(cosines)
        ),
        reported(
            "cosine_p01",
            percentile(cosines, 0.01),
            samples=len(cosines),
            where="1 % of texts are no closer to their reference",
        ),
    )


def _rank(wanted: Sequence[Vector], got: Sequence[Vector], gate: Gate) -> tuple[Judged, ...]:
    """Whether each text finds its nearest neighbour, or one that the reference finds hardly less near."""
    pool = math.isqrt(2 * WORK // len(wanted[0]))
    before, after = all_cosines(wanted[:pool]), all_cosines(got[:pool])
    if len(before) < 3:
        return (gated_share("rank", [], gate.rank, where="three texts are needed to have neighbours"),)
    near = NEAR * pstdev([x for i, row in enumerate(before) for x in row[:i]])
    nearest = [row.index(max(row)) for row in after]
    lost = [max(row) - row[found] for row, found in zip(before, nearest, strict=True)]
    kept = [(float(loss <= near), 1.0) for loss in lost]
    same = [(float(loss == 0), 1.0) for loss in lost]
    most = max(range(len(lost)), key=lost.__getitem__)
    count = sum(loss > near for loss in lost)
    where = f"{count} of {len(lost)} texts find one that is less near by more than {near:.2g}"
    if count:
        where += f", at most {lost[most]:.2g} in text {most + 1}"
    # Cosines of vectors of length 1 move by no more than the two vectors together, and a gap by twice that.
    moved = max(math.dist(a, b) for a, b in zip(wanted, got, strict=True))
    fixed = f"no vector moves by more than {moved:.1g}, so that none could"
    cannot_change = fixed if 4 * moved < near else None
    return (
        gated_share("rank", kept, gate.rank, where=where, cannot_change=cannot_change),
        reported("rank_exact", proportion(same), samples=len(same), where="the very same neighbour"),
    )


def all_cosines(units: Sequence[Vector]) -> list[list[float]]:
    """Cosines of all pairs of vectors of length 1; minus infinity of each with itself."""
    found = [[-math.inf] * len(units) for _ in units]
    for i, a in enumerate(units):
        for j in range(i):
            found[i][j] = found[j][i] = dot(a, units[j])
    return found

"""Retrieval with an embedding model: does a query still find its document among all others?

Pairs are the user's own (lines with `query` and `document`), else made of the built-in texts: the first
sentence of each asks for the rest of it, which is easier than real questions.
"""

import re
from collections.abc import Sequence

from model_optimizer.core import Gate

from .intervals import decide_mean, proportion, ratio
from .judged import Judged, gated, reported
from .outputs import Outputs
from .quality import Extra, Pairs
from .texts import Sample, Texts
from .vectors import dot, unit

MOST = 300
"""Pairs that are searched: every query is held against every document."""

FEWEST = 10
DEPTHS = (1, 10)


def extra(texts: Texts) -> Extra | None:
    """Queries and documents as texts of one's own; None when there are too few to search among."""
    found = list(dict.fromkeys(_pairs(texts)))[:MOST]
    if len(found) < FEWEST:
        return None
    samples = [*(query for query, _ in found), *(document for _, document in found)]

    def judge(pairs: Pairs, gate: Gate) -> tuple[Judged, ...]:
        ((reference, candidate),) = pairs
        return compare(ranks(reference), ranks(candidate), gate, made=texts.whole)

    return Extra(what="retrieval", groups=tuple((Sample(text=text),) for text in samples), judge=judge)


def _pairs(texts: Texts) -> list[tuple[str, str]]:
    own = [(s.text, s.pair) for s in texts.samples if s.pair is not None]
    if own or not texts.whole:
        return own
    cut = [re.split(r"(?<=[.!?])\s+", s.text, maxsplit=1) for s in texts.samples]
    return [(parts[0], parts[1]) for parts in cut if len(parts) == 2]


def ranks(outputs: Outputs) -> list[int]:
    """For each query how many documents are nearer than its own: 0 when it finds it at once."""
    half = outputs.texts // 2
    units = [unit(outputs.row("vectors", i)) for i in range(outputs.texts)]
    found: list[int] = []
    for number in range(half):
        own = dot(units[number], units[half + number])
        found.append(sum(dot(units[number], other) > own for other in units[half:]))
    return found


def compare(before: Sequence[int], after: Sequence[int], gate: Gate, *, made: bool) -> tuple[Judged, ...]:
    """Recall at a few depths, and the candidate's share of the reference's, query by query."""
    source = "pairs made of the built-in texts" if made else "your pairs"
    found: list[Judged] = []
    for depth in DEPTHS:
        was = [(float(rank < depth), 1.0) for rank in before]
        now = [(float(rank < depth), 1.0) for rank in after]
        name = f"recall@{depth}"
        if depth == 1 and any(x for x, _ in was):
            kept = ratio([(n, w) for (n, _), (w, _) in zip(now, was, strict=True)])
            where = f"{source}; {sum(x for x, _ in was):g} found became {sum(x for x, _ in now):g}"
            found.append(
                gated(
                    "recall_recovery",
                    kept,
                    gate.recovery,
                    decide_mean(kept, gate.recovery),
                    where=where,
                    samples=len(before),
                )
            )
        found.append(reported(name, proportion(now), samples=len(after), where=source))
        found.append(
            reported(f"{name}_reference", proportion(was), samples=len(before), where="the reference")
        )
    return tuple(found)

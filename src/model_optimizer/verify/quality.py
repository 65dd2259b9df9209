"""The layer `quality`: how much of the reference's quality is left, in numbers to weigh against speed.

It is the layer `model` on longer texts, with results by the place in the context, tasks with answers to
choose from, and retrieval for embedding models. Those bring texts of their own.
"""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from model_optimizer.core import Artifact, Gate, Progress, RunWorker, UsageError, Verdict, worst

from .endpoint import Endpoint
from .intervals import exponential, percentile, ratio
from .judged import Judged, reported
from .limits import MAX_TEXTS
from .model import Question, answers, verify_model
from .outputs import Outputs
from .texts import Group, Texts
from .tokens import Position, position

MAX_TOKENS = 1024
"""Where a text is cut: longer than the layer `model`, since errors add up along the context."""

EDGES = (1, 32, 128, 512, 2048, 8192, 32768)
"""Predicted tokens are sorted by how many stand before them: 1 to 31, 32 to 127, and so on. Chosen: each four
times as far, so that a short text fills more than one."""

FEWEST = 50
"""Positions below which a place in the context is not reported."""

GATED = ("recovery", "top1", "cosine", "rank")
"""The limits of a gate that can be set by hand."""

Pairs = Sequence[tuple[Outputs, Outputs]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Extra:
    """Texts of their own that both models run over, and what is made of the answers."""

    what: str
    groups: tuple[Group, ...]
    judge: Callable[[Pairs, Gate], tuple[Judged, ...]]


def verify_quality(
    candidate: Artifact | Endpoint,
    reference: Artifact,
    gate: Gate,
    *,
    run: RunWorker,
    scratch: Path,
    progress: Progress,
    texts: Texts | None = None,
    max_texts: int = MAX_TEXTS,
    max_tokens: int = MAX_TOKENS,
    extras: Sequence[Extra] = (),
) -> Verdict:
    """As `verify_model`, by place in the context too, and with `extras`; raises what that raises."""
    verdict = verify_model(
        candidate,
        reference,
        gate,
        run=run,
        scratch=scratch,
        progress=progress,
        texts=texts,
        max_texts=max_texts,
        max_tokens=max_tokens,
        layer="quality",
        further=by_place if reference.task == "generate" else None,
    )
    if any(c.metric == "finite" and c.outcome == "fail" for c in verdict.comparisons):
        return verdict
    question = Question(
        candidate=candidate,
        reference=reference,
        gate=gate,
        run=run,
        scratch=scratch,
        progress=progress,
        max_tokens=max_tokens,
    )
    for extra in extras:
        verdict = with_judged(verdict, extra.judge([answers(question, extra.groups)], gate), extra.what)
    return verdict


def with_judged(verdict: Verdict, found: Sequence[Judged], what: str) -> Verdict:
    """The verdict with further comparisons; its outcome is the worst of all."""
    comparisons = (*verdict.comparisons, *(j.comparison for j in found))
    outcome = worst(tuple(c.outcome for c in comparisons))
    bad = next((j.comparison for j in found if j.comparison.outcome == "fail"), None)
    because = verdict.because
    if bad:
        because = f"{because}; {what}: {bad.metric} is {bad.got or 0:.4g}, wanted {bad.wanted}"
    elif outcome == "undecided" != verdict.outcome:
        because = f"{because}; {what}: too few to decide"
    return dataclasses.replace(verdict, comparisons=comparisons, outcome=outcome, because=because)


def changed(gate: Gate, wanted: Mapping[str, float]) -> Gate:
    """The gate with limits that somebody named. UsageError for a limit that there is not, or is no share."""
    for name, value in wanted.items():
        if name not in GATED:
            raise UsageError(f"there is no limit `{name}`", hint=(f"limits are {', '.join(GATED)}",))
        if not (math.isfinite(value) and 0 <= value <= 1):
            raise UsageError(f"the limit of `{name}` must lie between 0 and 1, not at {value:g}")
    if not wanted:
        return gate
    return dataclasses.replace(gate, **wanted, source=f"named by the user; else {gate.source}")


def by_place(pairs: Pairs) -> tuple[Judged, ...]:
    """Recovery of perplexity and divergence for each stretch of the context, and the tail of the divergence.

    A format that suits short prompts may lose long ones: an error in the keys of the cache is seen by every
    later token.
    """
    texts = [
        [(place, position(reference, candidate, at)) for place, at in enumerate(reference.positions(text), 1)]
        for reference, candidate in pairs
        for text in range(reference.texts)
    ]
    found: list[Judged] = []
    for first, last in zip(EDGES, (*EDGES[1:], math.inf), strict=True):
        there = [[p for place, p in text if first <= place < last] for text in texts]
        there = [text for text in there if text]
        if sum(map(len, there)) >= FEWEST:
            end = "" if last == math.inf else f"{last - 1:g}"
            found += _stretch(there, f"{first}-{end}")
    everything = [p.kl for text in texts for _, p in text]
    if everything:
        tail = percentile(everything, 0.99)
        found.append(
            reported("kl_p99", tail, samples=len(everything), where="99 % of positions are no further apart")
        )
    return tuple(found)


def _stretch(texts: Sequence[Sequence[Position]], name: str) -> tuple[Judged, Judged]:
    count = sum(map(len, texts))
    where = f"tokens with {name} tokens before them"
    gains = ratio([(sum(p.log_candidate - p.log_reference for p in text), len(text)) for text in texts])
    kl = ratio([(sum(p.kl for p in text), len(text)) for text in texts])
    return (
        reported(f"recovery@{name}", exponential(gains), samples=count, where=where),
        reported(f"kl@{name}", kl, samples=count, where=where),
    )

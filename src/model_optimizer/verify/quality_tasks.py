"""Tasks with answers to choose from, in a local file: does the candidate still choose as well?

The format is one JSON object a line, `{"context": "...", "choices": ["...", "..."], "answer": 0}`. A model
chooses the continuation to which it gives the highest probability, as the `multiple_choice` tasks of lm-eval
have it; `context` and a choice are joined as they are, so that a choice begins with its space.
"""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from model_optimizer.core import Gate, UsageError
from model_optimizer.system import user_text

from .intervals import Interval, decide_mean, proportion, ratio, wilson
from .judged import Judged, gated, reported
from .outputs import Outputs
from .quality import Extra, Pairs
from .texts import Group, Sample

SYNTAX = (
    'write one a line: {"context": "The capital of France is", "choices": [" Paris", " Rome"], "answer": 0}'
)
LARGEST_BYTES = 64 << 20
MOST_QUESTIONS = 2000
MOST_CHOICES = 26


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One question; `answer` counts from 0."""

    context: str
    choices: tuple[str, ...]
    answer: int


def read(path: Path) -> tuple[Item, ...]:
    """The questions of a file. UsageError names the line that cannot be used."""
    lines = user_text.read(path, largest_bytes=LARGEST_BYTES, hint=(SYNTAX,)).split("\n")
    items = tuple(_item(path, number, line) for number, line in enumerate(lines, 1) if line.strip())
    if not items:
        raise UsageError(f"`{path}` holds no question", hint=(SYNTAX,))
    if len(items) > MOST_QUESTIONS:
        raise UsageError(f"`{path}` holds {len(items)} questions, at most {MOST_QUESTIONS} are asked")
    return items


def _item(path: Path, number: int, line: str) -> Item:
    try:
        row = user_text.parse(line)
    except ValueError as error:
        raise UsageError(f"`{path}` line {number} is not JSON", cause=(str(error),), hint=(SYNTAX,)) from None
    fields = cast("dict[str, object]", row) if isinstance(row, dict) else {}
    context, choices, answer = (fields.get(key) for key in ("context", "choices", "answer"))
    texts = cast("list[object]", choices) if isinstance(choices, list) else []
    good = [text for text in texts if isinstance(text, str) and text]
    whole = isinstance(answer, int) and not isinstance(answer, bool)
    if not (isinstance(context, str) and context.strip() and whole and len(good) == len(texts)):
        raise UsageError(f"`{path}` line {number} is no question", hint=(SYNTAX,))
    if not (2 <= len(good) <= MOST_CHOICES and 0 <= cast("int", answer) < len(good)):
        raise UsageError(
            f"`{path}` line {number}: the answer is not among 2 to {MOST_CHOICES} choices", hint=(SYNTAX,)
        )
    return Item(context=context, choices=tuple(good), answer=cast("int", answer))


def extra(items: Sequence[Item]) -> Extra:
    """The questions as texts for both models: the context alone, then with each choice."""
    groups: list[Group] = [
        (Sample(text=item.context), *(Sample(text=item.context + choice) for choice in item.choices))
        for item in items
    ]

    def judge(pairs: Pairs, gate: Gate) -> tuple[Judged, ...]:
        ((reference, candidate),) = pairs
        return compare(
            [item.answer for item in items], chosen(items, reference), chosen(items, candidate), gate
        )

    return Extra(what="tasks", groups=tuple(groups), judge=judge)


def chosen(items: Sequence[Item], outputs: Outputs) -> list[int | None]:
    """What a model chooses; None where the text was cut before its choices differ."""
    found: list[int | None] = []
    text = 0
    for item in items:
        shared = _tokens(outputs, text)
        scores = [
            _likelihood(outputs, text + 1 + number, len(_common(shared, _tokens(outputs, text + 1 + number))))
            for number in range(len(item.choices))
        ]
        text += 1 + len(item.choices)
        known = [score for score in scores if score is not None]
        found.append(scores.index(max(known)) if len(known) == len(scores) else None)
    return found


def _tokens(outputs: Outputs, text: int) -> Sequence[float]:
    offsets = outputs.arrays["offsets"]
    return outputs.arrays["tokens"][int(offsets[text]) : int(offsets[text + 1])]


def _common(one: Sequence[float], other: Sequence[float]) -> Sequence[float]:
    for at, (a, b) in enumerate(zip(one, other, strict=False)):
        if a != b:
            return one[:at]
    return one[: min(len(one), len(other))]


def _likelihood(outputs: Outputs, text: int, before: int) -> float | None:
    """Log-probability of the tokens behind the first `before`; None when there are none.

    A token at the seam may belong to both (` the` + `re`); it then counts as part of the choice.
    """
    rows = list(outputs.positions(text))[max(0, before - 1) :]
    if not rows:
        return None
    true, total = outputs.arrays["true_logit"], outputs.arrays["logsumexp"]
    return sum(true[row] - total[row] for row in rows)


def compare(
    right: Sequence[int], before: Sequence[int | None], after: Sequence[int | None], gate: Gate
) -> tuple[Judged, ...]:
    """Shares of right answers, and the candidate's over the reference's, question by question."""
    kept = [row for row in zip(right, before, after, strict=True) if None not in row]
    cut = len(right) - len(kept)
    where = f"{cut} questions are too long and left out" if cut else "questions answered right"
    was = [(float(b == r), 1.0) for r, b, _ in kept]
    now = [(float(a == r), 1.0) for r, _, a in kept]
    same = [(float(a == b), 1.0) for _, b, a in kept]
    shares = (
        reported("task_accuracy", proportion(now), samples=len(kept), where=where),
        reported("task_accuracy_reference", proportion(was), samples=len(kept), where="the reference"),
        reported("task_same", proportion(same), samples=len(kept), where="the same choice, right or wrong"),
    )
    if not any(x for x, _ in was):
        return shares
    kept_share = _kept([w for w, _ in was], [n for n, _ in now])
    decision = decide_mean(kept_share, gate.recovery)
    found = gated(
        "task_recovery",
        kept_share,
        gate.recovery,
        decision,
        where=f"{sum(x for x, _ in was):g} right became {sum(x for x, _ in now):g} of {len(kept)}",
        samples=len(kept),
    )
    return (found, *shares)


def _kept(was: Sequence[float], now: Sequence[float]) -> Interval:
    """The candidate's right answers over the reference's.

    Where no answer changed, a ratio has an interval of no width, however few were asked: the lower end is
    then no higher than that of as many questions that were answered right.
    """
    found = ratio(list(zip(now, was, strict=True)))
    low, _ = wilson(min(sum(now), sum(was)), sum(was))
    return dataclasses.replace(found, low=min(found.low, low))

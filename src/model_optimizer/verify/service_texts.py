"""Layer `service`, servers of texts: is an answer under load the answer alone, token by token?"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from .judged import Judged, gated_share, reported
from .limits import NEAR_TIE
from .service_seen import Said, Seen, limit

SAME = 0.99
"""Least share of tokens that are the same under load, near-ties apart. ASSUMED: sums are taken in another
order in another batch, which moves a logit by a unit in the last place and changes only near-ties."""

SURE = 3.0
"""Nats between the two likeliest tokens from which no order of sums makes another one likeliest. ASSUMED: the
unit in the last place of a BF16 logit of 20 is an eighth; a batch was not seen to move one by over two."""

Pairs = Sequence[tuple[Said, Said]]


def texts(seen: Seen, pairs: Pairs, alone: Mapping[int, Said]) -> tuple[Judged, ...]:
    """Streams of others, streams that are damaged, and the share of tokens that are the same.

    `pairs` are (alone, under load).
    """
    return (
        _mixed(seen, pairs, alone),
        _damaged(pairs),
        *_share(seen.concurrency, pairs),
    )


def _mixed(seen: Seen, pairs: Pairs, alone: Mapping[int, Said]) -> Judged:
    mixed = [
        got for wanted, got in pairs if got.text != wanted.text and _of_another(got, alone, seen.markers)
    ]
    found = limit(
        "mixed_streams", float(len(mixed)), "= 0", not mixed, samples=len(pairs),
        where=f"{len(mixed)} of {len(pairs)} answers hold what was said to another request",
        because=f"prompt {mixed[0].prompt + 1} got another one's answer" if mixed else None,
    )  # fmt: skip
    if mixed or len({said.text for said in alone.values()}) > 1 or len(alone) < 2:
        return found
    because = "all prompts get the same answer: streams that are mixed up could not be told apart"
    return Judged(comparison=replace(found.comparison, outcome="undecided", because=because))


def _of_another(got: Said, alone: Mapping[int, Said], markers: Sequence[str]) -> bool:
    """It is another prompt's whole answer, or holds another prompt's marker."""
    own = alone[got.prompt].text
    if any(m in got.text and m not in own for i, m in enumerate(markers) if i != got.prompt):
        return True
    others = [a.text for i, a in alone.items() if i != got.prompt and a.text != own]
    return bool(got.text.strip()) and got.text in others


def _damaged(pairs: Pairs) -> Judged:
    """What rounding cannot do, in one answer of many too."""
    found = [why for wanted, got in pairs if (why := damage(wanted, got))]
    often = Counter(found).most_common(1)
    return limit(
        "damaged_streams", float(len(found)), "= 0", not found, samples=len(pairs),
        where=f"{len(found)} of {len(pairs)} answers differ in a way that no rounding has",
        because=f"{often[0][0]} ({often[0][1]} answers)" if often else None,
    )  # fmt: skip


def damage(wanted: Said, got: Said) -> str | None:
    """Why an answer under load cannot be the one alone, rounded otherwise; None where it can.

    A server asked for as many tokens each time gives as many; only one that may stop by itself gives fewer.
    """
    if got.text == wanted.text:
        return None
    if _told(wanted) and got.tokens is not None and got.ended != "stop" and wanted.ended != "stop":
        more = got.tokens - (wanted.tokens or 0)
        if more:
            return "tokens are missing in the stream" if more < 0 else "the stream holds tokens too many"
    if got.ended != "stop" and len(got.text) < len(wanted.text) and _whole_prefix(wanted, got):
        return "the answer ends early"
    at = first_difference(wanted, got)
    gap = wanted.gaps[at] if at < len(wanted.gaps) else float("inf")
    if gap >= NEAR_TIE and Counter(got.text) == Counter(wanted.text) and len(got.pieces) > 2:
        return "the pieces come in another order"
    if SURE <= gap < float("inf"):
        return f"it leaves the answer alone where the model is sure, by {gap:.1f} nats"
    return None


def _told(alone: Said) -> bool:
    """Whether the tokens that a server tells with a piece are those of it, and not of all so far."""
    return alone.tokens is not None and (alone.asked is None or alone.tokens <= alone.asked)


def _whole_prefix(wanted: Said, got: Said) -> bool:
    """Whether it ends at a piece of the answer alone, two or more before the last."""
    at = first_difference(wanted, got)
    return at <= len(wanted.pieces) - 2 and got.text == "".join(wanted.pieces[:at])


def first_difference(wanted: Said, got: Said) -> int:
    """The first piece of the answer alone that the other one does not have there."""
    at = end = 0
    for piece in wanted.pieces:
        if not got.text.startswith(piece, end):
            break
        at, end = at + 1, end + len(piece)
    return at


def _share(concurrency: int, pairs: Pairs) -> tuple[Judged, ...]:
    counts = [0.0, 0.0]
    by_prompt: dict[int, list[float]] = {}
    near = 0
    for wanted, got in pairs:
        same, tried, tie = _agreement(wanted, got)
        near += tie
        counts[0] += same
        counts[1] += tried
        row = by_prompt.setdefault(got.prompt, [0.0, 0.0])
        row[0] += same
        row[1] += tried
    ends = round(counts[1] - counts[0])
    share = gated_share(
        "same_tokens",
        [(s, n) for s, n in by_prompt.values()],
        SAME,
        where=f"at concurrency {concurrency} {ends} answers leave the one alone, near-ties apart",
        cannot_change="every answer is the same, token by token",
    )
    equal = sum(a.text == b.text for a, b in pairs)
    whole = reported(
        "same_answers", equal / len(pairs) if pairs else 0.0, samples=len(pairs),
        where=f"whole answers; {near} leave at a near-tie ({NEAR_TIE:g} nats)",
    )  # fmt: skip
    return share, whole


def _agreement(wanted: Said, got: Said) -> tuple[float, float, bool]:
    """(tokens that are the same, tokens compared, whether they part at a near-tie).

    A server under load may send several tokens at once, so that texts are compared, in the pieces of the
    answer alone. Behind the first difference the contexts differ: nothing more can be compared.
    """
    length = float(len(wanted.pieces))
    if wanted.text == got.text:
        return length, length, False
    at = first_difference(wanted, got)
    tie = at < len(wanted.gaps) and wanted.gaps[at] < NEAR_TIE
    return float(at), float(at if tie else at + 1), tie


def token_counts(seen: Seen, alone: Mapping[int, Said]) -> tuple[Judged, ...]:
    """The numbers of tokens that a server says it read and wrote; nothing where it says none."""
    said = [s for s in (*seen.alone, *seen.together) if s.usage is not None and not s.error]
    if not said:
        return ()
    wrong = [why for s in said if (why := miscounted(s, alone.get(s.prompt)))]
    return (
        limit(
            "token_counts", float(len(wrong)), "= 0", not wrong, samples=len(said),
            where=f"{len(wrong)} of {len(said)} answers are counted wrong",
            because=wrong[0] if wrong else None,
        ),
    )  # fmt: skip


def miscounted(said: Said, alone: Said | None) -> str | None:
    """What is wrong with the numbers of tokens that came with an answer."""
    usage = said.usage
    if usage is None:
        return None
    if usage.total is not None and usage.total != usage.prompt + usage.completion:
        return f"{usage.prompt} and {usage.completion} tokens are said to be {usage.total}"
    counted = said.tokens is not None and alone is not None and _told(alone) and said.ended != "stop"
    if counted and usage.completion != said.tokens:
        return f"{said.tokens} tokens came, {usage.completion} are counted"
    if said.asked is not None and usage.completion > said.asked:
        return f"{said.asked} tokens were asked for, {usage.completion} are counted"
    if alone is not None and alone.usage is not None and usage.prompt != alone.usage.prompt:
        return f"a prompt of {alone.usage.prompt} tokens is counted as {usage.prompt} under load"
    return None

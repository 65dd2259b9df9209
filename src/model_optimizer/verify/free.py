"""Language models that run freely: how far both say the same when each reads its own words.

One prompt is one trial: after the first token that differs the two read different texts, and what follows
says nothing. Where the reference itself hardly preferred its token (limits.NEAR_TIE) the prompt counts apart.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from model_optimizer.core import Comparison, Gate

from .intervals import mean, proportion
from .judged import REPORTED, Judged, gated_share, reported
from .limits import FREE_PROMPT, NEAR_TIE
from .outputs import Outputs

METRIC = "same_to_end"


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One continuation: how many tokens are the same before the first that differs, of how many."""

    same: int
    of: int
    near_tie: bool
    text: int

    @property
    def whole(self) -> bool:
        return self.same == self.of


def judge(pairs: Sequence[tuple[Outputs, Outputs]], gate: Gate) -> tuple[Judged, ...]:
    """() where the reference was not let run freely; a row that says so where only the candidate was not."""
    if not any("free_ids" in reference.arrays for reference, _ in pairs):
        return ()
    runs = _runs(pairs)
    if not runs:
        return (_not_run(gate),)
    clear = [run for run in runs if not run.near_tie]
    tied = len(runs) - len(clear)
    found = [_share(clear, gate)] if clear else []
    where = f"tokens before the first that differs, of {runs[0].of}"
    found.append(
        reported("tokens_before_difference", mean([r.same for r in runs]), samples=len(runs), where=where)
    )
    if tied:
        near = f"prompts that part where the reference's two best tokens are within {NEAR_TIE:g} nats"
        counts = [(float(run.near_tie), 1.0) for run in runs]
        found.append(reported("part_at_near_tie", proportion(counts), samples=len(runs), where=near))
    return tuple(found)


def _runs(pairs: Sequence[tuple[Outputs, Outputs]]) -> list[Run]:
    """Of every prompt that both continued."""
    found: list[Run] = []
    before = 0
    for reference, candidate in pairs:
        texts = candidate.arrays.get("free_text", ()) if "free_text" in reference.arrays else ()
        for row, text in enumerate(texts):
            wanted, got = reference.row("free_ids", row), candidate.row("free_ids", row)
            same = next((n for n, (a, b) in enumerate(zip(wanted, got, strict=True)) if a != b), len(wanted))
            tie = same < len(wanted) and reference.row("free_gaps", row)[same] < NEAR_TIE
            found.append(Run(same=same, of=len(wanted), near_tie=tie, text=before + int(text) + 1))
        before += reference.texts
    return found


def _share(clear: Sequence[Run], gate: Gate) -> Judged:
    counts = [(float(run.whole), 1.0) for run in clear]
    parted = sorted(run.same + 1 for run in clear if not run.whole)
    where = f"{len(parted)} of {len(clear)} prompts of {FREE_PROMPT} tokens part within {clear[0].of}"
    if parted:
        first = min((run for run in clear if not run.whole), key=lambda run: run.same)
        half = parted[(len(parted) - 1) // 2]
        where += f": the earliest at token {parted[0]} (text {first.text}), half of them by token {half}"
    if gate.free_running is None:
        return reported(METRIC, proportion(counts), samples=len(counts), where=where)
    return gated_share(METRIC, counts, gate.free_running, where=where)


def _not_run(gate: Gate) -> Judged:
    """Undecided where a limit was set on what was not measured."""
    wanted = REPORTED if gate.free_running is None else f">= {gate.free_running:g}"
    return Judged(
        comparison=Comparison(
            metric=METRIC,
            got=None,
            wanted=wanted,
            outcome="pass" if gate.free_running is None else "undecided",
            where="not measured: the candidate keeps no cache, or gives no ids of the tokens it generates",
        ),
        more_texts=None,
    )

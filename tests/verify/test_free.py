"""Free-running continuations: what counts as the same, what is a near-tie, what was not measured."""

from pathlib import Path

import pytest

from model_optimizer.core import Comparison, Gate
from model_optimizer.verify import free, outputs
from model_optimizer.verify.judged import more_texts
from model_optimizer.verify.outputs import Outputs

from . import made

GATE = Gate(recovery=0.98, top1=0.9, cosine=0.9, rank=0.9, source="test")
STRICT = Gate(recovery=0.98, top1=0.9, cosine=0.9, rank=0.9, source="test", free_running=0.9)
Rows = list[list[int]]


def run(path: Path, ids: Rows | None, gaps: list[list[float]] | None = None, texts: int = 100) -> Outputs:
    """Outputs of `texts` texts of two tokens, with a continuation of each."""
    arrays: dict[str, tuple[str, object]] = {"offsets": ("i", [2 * n for n in range(texts + 1)])}
    if ids is not None:
        arrays["free_text"] = ("i", list(range(len(ids))))
        arrays["free_ids"] = ("i", ids)
        arrays["free_gaps"] = ("f", gaps or [[1.0] * len(ids[0])] * len(ids))
    made.write(path, arrays, made.ABOUT)  # pyright: ignore[reportArgumentType]
    return outputs.read(path)


def judged(pair: tuple[Outputs, Outputs], gate: Gate = GATE) -> dict[str, Comparison]:
    return {j.comparison.metric: j.comparison for j in free.judge([pair], gate)}


def test_equal_continuations_are_the_same_to_the_end(tmp_path: Path) -> None:
    rows = [[1, 2, 3, 4]] * 100
    found = judged((run(tmp_path / "r", rows), run(tmp_path / "c", rows)))
    assert (found["same_to_end"].got, found["same_to_end"].samples) == (1, 100)
    assert found["tokens_before_difference"].got == 4
    assert "part_at_near_tie" not in found


def test_what_follows_a_difference_says_nothing(tmp_path: Path) -> None:
    """One that parts at the second token, though it says the same again afterwards."""
    rows = [[1, 2, 3, 4]] * 100
    other = [[1, 9, 3, 4], *rows[1:]]
    found = judged((run(tmp_path / "r", rows), run(tmp_path / "c", other)))
    assert found["same_to_end"].got == pytest.approx(0.99)
    assert "the earliest at token 2 (text 1)" in (found["same_to_end"].where or "")
    assert found["tokens_before_difference"].got == pytest.approx(3.97)


def test_parting_at_a_near_tie_counts_apart(tmp_path: Path) -> None:
    rows = [[1, 2, 3, 4]] * 100
    gaps = [[1.0, 0.01, 1.0, 1.0]] + [[1.0] * 4] * 99
    other = [[1, 9, 3, 4], *rows[1:]]
    found = judged((run(tmp_path / "r", rows, gaps), run(tmp_path / "c", other)))
    assert (found["same_to_end"].got, found["same_to_end"].samples) == (1, 99)
    assert found["part_at_near_tie"].got == pytest.approx(0.01)


def test_a_limit_of_ones_own_decides_and_says_how_many_more(tmp_path: Path) -> None:
    rows = [[1, 2]] * 100

    def outcome(wrong: int) -> tuple[str, int | None]:
        other = [[1, 9]] * wrong + rows[wrong:]
        pair = (run(tmp_path / "r", rows), run(tmp_path / "c", other))
        found = free.judge([pair], STRICT)
        return found[0].comparison.outcome, more_texts(found)

    assert outcome(0)[0] == "pass"
    assert outcome(40)[0] == "fail"
    undecided, more = outcome(8)
    assert undecided == "undecided"
    assert more is not None and more > 100


def test_a_candidate_with_fewer_continuations_is_compared_on_those(tmp_path: Path) -> None:
    found = judged((run(tmp_path / "r", [[1, 2]] * 100), run(tmp_path / "c", [[1, 2]] * 7)))
    assert found["same_to_end"].samples == 7


def test_what_was_not_measured_is_said_and_no_pass(tmp_path: Path) -> None:
    pair = (run(tmp_path / "r", [[1, 2]] * 100), run(tmp_path / "c", None))
    said = judged(pair)["same_to_end"]
    assert (said.got, said.outcome) == (None, "pass")
    assert "not measured" in (said.where or "")
    assert judged(pair, STRICT)["same_to_end"].outcome == "undecided"
    assert judged((run(tmp_path / "r", None), run(tmp_path / "c", None))) == {}


def test_the_text_is_counted_over_all_draws(tmp_path: Path) -> None:
    rows = [[1, 2]] * 10
    same = (run(tmp_path / "a", rows, texts=10), run(tmp_path / "b", rows, texts=10))
    parts = (run(tmp_path / "c", rows, texts=10), run(tmp_path / "d", [[5, 2], *rows[1:]], texts=10))
    (found, *_) = free.judge([same, parts], GATE)
    assert "(text 11)" in (found.comparison.where or "")

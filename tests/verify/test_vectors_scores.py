"""Comparing embedding models and cross-encoders, on numbers small enough to work out by hand."""

import math
import random
from pathlib import Path

import pytest

from model_optimizer.core import Comparison, Gate
from model_optimizer.verify import scores, vectors

from . import made

GATE = Gate(recovery=0.98, top1=0.9, cosine=0.99, rank=0.9, source="test")
Rows = list[list[float]]


def cloud(seed: int, count: int, size: int = 8) -> Rows:
    dice = random.Random(seed)
    return [[dice.gauss(0, 1) for _ in range(size)] for _ in range(count)]


def embed(tmp_path: Path, reference: Rows, candidate: Rows, **about: object) -> dict[str, Comparison]:
    pair = (made.vectors(tmp_path / "r", reference), made.vectors(tmp_path / "c", candidate, **about))
    return {j.comparison.metric: j.comparison for j in vectors.judge([pair], GATE)}


def rerank(tmp_path: Path, reference: Rows, candidate: Rows, per_query: int) -> dict[str, Comparison]:
    pair = (
        made.vectors(tmp_path / "r", reference, "scores"),
        made.vectors(tmp_path / "c", candidate, "scores"),
    )
    groups = [range(i, i + per_query) for i in range(0, len(reference), per_query)]
    return {j.comparison.metric: j.comparison for j in scores.judge([pair], groups, GATE)}


def test_the_same_vectors_pass_whatever_their_length(tmp_path: Path) -> None:
    rows = cloud(1, 60)
    found = embed(tmp_path, rows, [[3 * x for x in row] for row in rows])
    assert {c.outcome for c in found.values()} == {"pass"}
    assert found["cosine"].got == pytest.approx(1)
    assert found["rank"].got == 1
    assert found["rank"].samples == 60


def test_cosine_by_hand(tmp_path: Path) -> None:
    found = embed(tmp_path, [[1.0, 0.0]] * 99 + [[0.0, 2.0]], [[1.0, 0.0]] * 99 + [[3.0, 4.0]])
    assert found["cosine"].got == pytest.approx((99 + 0.8) / 100)
    assert found["cosine"].where == "least 0.8, text 100"
    assert found["cosine_p01"].got == pytest.approx(0.8)


def test_vectors_of_another_model_fail(tmp_path: Path) -> None:
    found = embed(tmp_path, cloud(1, 60), cloud(2, 60))
    assert found["cosine"].outcome == "fail"
    assert found["rank"].outcome == "fail"
    assert found["vectors_ulp"].outcome == "fail"


def test_an_even_turn_of_the_space_keeps_ranks_and_loses_cosine(tmp_path: Path) -> None:
    rows = cloud(3, 50)
    found = embed(tmp_path, rows, [[*row[1:], row[0]] for row in rows])
    assert found["rank"].got == 1
    assert found["cosine"].outcome == "fail"


def test_a_neighbour_about_as_near_is_no_loss(tmp_path: Path) -> None:
    """Every vector has a twin on either side; which of the two comes first says nothing."""
    around = [[math.cos(i * math.pi / 10), math.sin(i * math.pi / 10)] for i in range(20)]
    found = embed(tmp_path, around, [[a + 1e-3 * i, b] for i, (a, b) in enumerate(around)])
    assert found["rank"].got == 1
    assert 0.2 < (found["rank_exact"].got or 0) < 0.8


def test_a_neighbour_that_is_clearly_less_near_is_a_loss(tmp_path: Path) -> None:
    """The last vector lies beside the first one, and the candidate puts it on the other side."""
    around = [[math.cos(i), math.sin(i)] for i in (0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 0.1)]
    found = embed(tmp_path, around, [*around[:-1], [math.cos(3.1), math.sin(3.1)]])
    # The first and the last one have lost each other; those at 3 and 4 find the last one beside them.
    assert found["rank"].got == pytest.approx(1 - 4 / 7)
    assert found["rank"].where is not None
    assert found["rank"].where.startswith("4 of 7 texts find one that is less near by more than ")


def test_what_arithmetic_rules_out_needs_no_sample_size(tmp_path: Path) -> None:
    """No gate near 1 can be shown by 60 texts, but vectors that do not move cannot change a neighbour."""
    strict = Gate(recovery=1, top1=1, cosine=0.99, rank=0.9999, source="test")
    rows = cloud(1, 60)
    for turned, outcome in ((1e-6, "pass"), (1e-1, "undecided")):
        moved = [[a - turned * b, b + turned * a, *rest] for a, b, *rest in rows]
        pair = (made.vectors(tmp_path / "r", rows), made.vectors(tmp_path / "c", moved))
        found = {j.comparison.metric: j.comparison for j in vectors.judge([pair], strict)}
        assert (found["rank"].outcome, found["rank"].got) == (outcome, 1)
        assert (found["rank"].because is not None) == (outcome == "pass")


def test_cosines_of_all_pairs() -> None:
    found = vectors.all_cosines([[1.0, 0.0], [0.8, 0.6], [0.0, 1.0]])
    rest = -math.inf
    assert found == [
        [rest, 0.8, 0.0],
        [0.8, rest, pytest.approx(0.6)],
        [0.0, pytest.approx(0.6), rest],
    ]


def test_two_texts_have_no_neighbours_to_speak_of(tmp_path: Path) -> None:
    rows = cloud(1, 2)
    assert embed(tmp_path, rows, rows)["rank"].outcome == "undecided"


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_vector_that_is_not_finite_fails_and_says_where(tmp_path: Path, bad: float) -> None:
    rows = cloud(4, 10)
    broken = [list(row) for row in rows]
    broken[6][2] = bad
    found = embed(tmp_path, rows, broken)
    assert list(found) == ["finite"]
    assert found["finite"].where == "candidate, text 7"


def test_a_vector_of_zeros_has_no_direction(tmp_path: Path) -> None:
    found = embed(tmp_path, cloud(4, 10), [*cloud(4, 10)[:9], [0.0] * 8])
    assert found["finite"].outcome == "fail"


def test_vectors_of_another_size_fail(tmp_path: Path) -> None:
    found = embed(tmp_path, cloud(4, 10), cloud(4, 10, size=4))
    assert (found["dimensions"].got, found["dimensions"].wanted) == (4, "= 8")


def test_the_same_scores_pass(tmp_path: Path) -> None:
    rows = cloud(5, 200, size=1)
    found = rerank(tmp_path, rows, rows, 5)
    assert {c.outcome for c in found.values()} == {"pass"}
    assert found["score_correlation"].got == 1
    assert found["score_order"].got == 1
    tied = found["score_order_near_ties"].samples if "score_order_near_ties" in found else 0
    assert (found["score_order"].samples or 0) + (tied or 0) == 40 * 10


def test_reversed_scores_fail(tmp_path: Path) -> None:
    rows = cloud(5, 200, size=1)
    found = rerank(tmp_path, rows, [[-x for x in row] for row in rows], 5)
    assert found["score_correlation"].got == pytest.approx(-1)
    assert found["score_correlation"].outcome == found["score_order"].outcome == "fail"
    assert found["score_order"].got == 0


def test_scores_that_never_change_fail(tmp_path: Path) -> None:
    found = rerank(tmp_path, cloud(5, 200, size=1), [[0.5]] * 200, 5)
    assert found["score_correlation"].got == 0
    assert found["score_correlation"].outcome == "fail"


def test_of_several_labels_the_one_that_differs_most_is_judged(tmp_path: Path) -> None:
    rows = cloud(6, 100, size=3)
    found = rerank(tmp_path, rows, [[a, -b, c] for a, b, c in rows], 5)
    assert found["score_correlation"].got == pytest.approx(-1)


def test_correlation_by_hand() -> None:
    assert scores.correlation([1, 2, 3, 4], [2, 1, 4, 3]) == pytest.approx(0.6)
    assert scores.correlation([1, 1], [2, 3]) == 0

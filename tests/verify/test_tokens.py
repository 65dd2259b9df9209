"""Comparing language models, on logits small enough to work out by hand."""

import dataclasses
import math
import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model_optimizer.core import Comparison, Gate
from model_optimizer.verify import tokens

from . import made

GATE = Gate(recovery=0.98, top1=0.9, cosine=0.9, rank=0.9, source="test")


def compare(
    tmp_path: Path,
    reference: list[list[list[float]]],
    candidate: list[list[list[float]]],
    ids: list[list[int]] | None = None,
    **about: object,
) -> dict[str, Comparison]:
    """Every comparison by its metric."""
    ids = ids or [[0] * (len(text) + 1) for text in reference]
    pair = (
        made.logits(tmp_path / "reference", reference, ids),
        made.logits(tmp_path / "candidate", candidate, ids, reference, **about),
    )
    return {j.comparison.metric: j.comparison for j in tokens.judge([pair], GATE)}


def noise(seed: int, texts: int, positions: int, vocabulary: int = 5) -> list[list[list[float]]]:
    dice = random.Random(seed)
    return [[[dice.gauss(0, 2) for _ in range(vocabulary)] for _ in range(positions)] for _ in range(texts)]


def test_a_model_equals_itself(tmp_path: Path) -> None:
    logits = noise(1, 30, 20)
    found = compare(tmp_path, logits, logits)
    assert {c.outcome for c in found.values()} == {"pass"}
    assert found["recovery"].got == 1
    assert found["recovery"].interval == (1, 1)
    assert found["top1"].got == found["top5_overlap"].got == 1
    assert found["kl"].got == pytest.approx(0, abs=1e-9)
    assert found["logits_ulp"].got == 0
    assert found["perplexity"].got == found["perplexity_reference"].got


def test_numbers_by_hand(tmp_path: Path) -> None:
    """Reference certain to 80 %, candidate to 50 %, over two tokens, the true one the likelier."""
    reference = [[[math.log(0.8), math.log(0.2)]] * 4] * 10
    candidate = [[[math.log(0.5), math.log(0.5)]] * 4] * 10
    found = compare(tmp_path, reference, candidate)
    assert found["perplexity_reference"].got == pytest.approx(1.25)
    assert found["perplexity"].got == pytest.approx(2)
    assert found["recovery"].got == pytest.approx(0.625)
    assert found["recovery"].outcome == "fail"
    expected = 0.8 * math.log(0.8 / 0.5) + 0.2 * math.log(0.2 / 0.5)
    assert found["kl"].got == pytest.approx(expected, rel=1e-5)
    assert found["recovery"].samples == 40


def test_near_ties_are_counted_apart(tmp_path: Path) -> None:
    """A flip between two tokens 0.01 nats apart is no error of the candidate; it is still shown."""
    clear, tie, flipped = [5.0, 0.0, 0.0], [2.01, 2.0, 0.0], [2.0, 2.01, 0.0]
    found = compare(tmp_path, [[clear] * 8 + [tie] * 2] * 20, [[clear] * 8 + [flipped] * 2] * 20)
    assert (found["top1"].got, found["top1"].samples) == (1, 160)
    assert (found["top1_near_ties"].got, found["top1_near_ties"].samples) == (0, 40)
    assert found["top1_near_ties"].wanted == "reported"
    assert found["top1"].where == "0 of 160 clear positions differ"


def test_a_flip_beyond_a_near_tie_counts(tmp_path: Path) -> None:
    wrong = [[0.0, 5.0, 0.0]] * 5
    right = [[5.0, 0.0, 0.0]] * 5
    found = compare(tmp_path, [right] * 10, [right] * 7 + [wrong] + [right] * 2)
    assert found["top1"].got == 0.9
    assert found["top1"].where == "5 of 50 clear positions differ, most in text 8 (5)"
    assert found["top1"].outcome == "undecided"
    assert found["kl"].where is not None
    assert found["kl"].where.endswith("in text 8")


def test_what_is_not_finite_fails_alone_and_says_where(tmp_path: Path) -> None:
    logits = noise(2, 3, 4)
    broken = [[list(row) for row in text] for text in logits]
    broken[1][2][0] = math.nan
    broken[2][0][1] = math.inf
    found = compare(tmp_path, logits, broken)
    assert list(found) == ["finite"]
    assert found["finite"].where == "candidate, text 2, position 3"
    assert found["finite"].outcome == "fail"
    assert found["finite"].got == pytest.approx(10 / 12)
    found = compare(tmp_path, broken, logits)
    assert found["finite"].where == "reference, text 2, position 3"


def test_rounding_is_judged_by_the_type_that_made_it(tmp_path: Path) -> None:
    """0.02 beside logits of 8 is 2.5 units of float16, and 21 thousand units of float32."""
    reference = [[[8.0, 1.0, 0.0]] * 10] * 10
    candidate = [[[8.02, 1.0, 0.0]] * 10] * 10
    half = compare(tmp_path, reference, candidate, dtype="float16")["logits_ulp"]
    assert (half.outcome, half.wanted) == ("pass", "<= 32")
    assert half.got == pytest.approx(0.02 / 2**-7, rel=1e-3)
    single = compare(tmp_path, reference, candidate, dtype="float32")["logits_ulp"]
    assert single.outcome == "fail"
    assert single.because == "more than rounding in float32 explains"
    quantized = compare(tmp_path, reference, candidate, quantized=True)["logits_ulp"]
    assert (quantized.outcome, quantized.wanted) == ("pass", "reported")


def test_recovery_is_paired_by_text(tmp_path: Path) -> None:
    """Texts differ wildly in difficulty; the change of each is the same, so the interval is narrow."""
    dice = random.Random(3)
    reference = [[[dice.uniform(0, 6), 0.0]] * 5 for _ in range(40)]
    # A shift of the log-probability of the true token by 0.01 in every text.
    candidate: list[list[list[float]]] = []
    for text in reference:
        p = math.exp(text[0][0]) / (1 + math.exp(text[0][0])) * math.exp(-0.01)
        candidate.append([[math.log(p / (1 - p)), 0.0]] * 5)
    found = compare(tmp_path, reference, candidate)
    assert found["recovery"].got == pytest.approx(math.exp(-0.01), abs=1e-5)
    low, high = found["recovery"].interval or (0, 1)
    assert high - low < 1e-4
    low, high = found["perplexity"].interval or (0, 0)
    assert high - low > 0.1
    assert found["recovery"].outcome == "pass"


@given(st.lists(st.floats(-20, 20), min_size=3, max_size=8), st.data())
def test_divergence_is_a_lower_bound_that_is_never_negative(values: list[float], data: st.DataObject) -> None:
    others = data.draw(st.lists(st.floats(-20, 20), min_size=len(values), max_size=len(values)))

    def logs(row: list[float]) -> list[float]:
        total = math.log(sum(math.exp(x - max(row)) for x in row)) + max(row)
        return [x - total for x in row]

    p, q = logs(values), logs(others)
    whole = sum(math.exp(a) * (a - b) for a, b in zip(p, q, strict=True))
    kept = sorted(range(len(p)), key=lambda i: -p[i])[:2]
    bound = tokens.divergence([p[i] for i in kept], [q[i] for i in kept])
    assert -1e-12 <= bound <= whole + 1e-6


def test_texts_of_several_rounds_are_numbered_through(tmp_path: Path) -> None:
    logits = noise(4, 3, 4)
    broken = [[list(row) for row in text] for text in logits]
    broken[2][1][0] = math.nan
    ids = [[0] * 5] * 3
    good = (made.logits(tmp_path / "a", logits, ids), made.logits(tmp_path / "b", logits, ids, logits))
    bad = (made.logits(tmp_path / "c", logits, ids), made.logits(tmp_path / "d", broken, ids, logits))
    (found,) = tokens.judge([good, bad], GATE)
    assert found.comparison.where == "candidate, text 6, position 2"


def test_a_gate_by_name_is_a_limit_on_top_k() -> None:
    from model_optimizer.cli.verify_options import NAMED

    assert NAMED["top-k-999"] == ("topk", 0.999)


def test_top_k_is_reported_and_with_a_limit_decides(tmp_path: Path) -> None:
    """A most likely token that falls behind five others fails only where it was asked for."""
    rows = [[[9.0, 5.0, 4.0, 3.0, 2.0, 1.0, 0.0]]] * 40
    behind = [[[0.0, 5.0, 4.0, 3.0, 2.0, 1.0, 0.5]]] * 40
    ids = [[0, 1]] * 40
    right = made.logits(tmp_path / "a", rows, ids)
    wrong = made.logits(tmp_path / "b", behind, ids, of=rows)
    found = {j.comparison.metric: j.comparison for j in tokens.judge([(right, wrong)], GATE)}
    assert (found["topk"].got, found["topk"].wanted, found["topk"].samples) == (0.0, "reported", 40)
    asked = dataclasses.replace(GATE, topk=0.999)
    found = {j.comparison.metric: j.comparison for j in tokens.judge([(right, wrong)], asked)}
    assert (found["topk"].outcome, found["topk"].wanted) == ("fail", ">= 0.999")

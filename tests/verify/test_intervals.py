"""Intervals with known answers, and how many more texts would decide."""

import math
import random
from statistics import NormalDist

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model_optimizer.verify import intervals
from model_optimizer.verify.intervals import Interval


@pytest.mark.parametrize(
    ("successes", "trials", "low", "high"),
    [
        # Newcombe 1998, table I, method 3 (Wilson's score without continuity correction).
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0000, 0.1611),
        (1, 29, 0.0061, 0.1718),
        (29, 29, 0.8830, 1.0000),
    ],
)
def test_wilson_has_the_published_values(successes: int, trials: int, low: float, high: float) -> None:
    found = intervals.wilson(successes, trials)
    assert found == (pytest.approx(low, abs=5e-5), pytest.approx(high, abs=5e-5))


def test_nothing_tried_says_nothing() -> None:
    assert intervals.wilson(0, 0) == (0.0, 1.0)
    assert intervals.decide_proportion([], 0.9).outcome == "undecided"
    assert intervals.decide_proportion([], 0.9).more_texts is None


@given(st.integers(1, 10_000), st.data())
def test_wilson_holds_the_share_and_narrows(trials: int, data: st.DataObject) -> None:
    successes = data.draw(st.integers(0, trials))
    low, high = intervals.wilson(successes, trials)
    assert 0 <= low <= successes / trials <= high <= 1
    wider_low, wider_high = intervals.wilson(successes / 2, trials / 2)
    assert high - low <= wider_high - wider_low + 1e-12


def test_errors_in_one_text_count_for_less_than_errors_all_over() -> None:
    spread = [(99.0, 100.0)] * 100
    clustered = [(100.0, 100.0)] * 99 + [(0.0, 100.0)]
    assert intervals.design_effect(spread) == 1
    assert intervals.design_effect(clustered) == pytest.approx(100, rel=0.02)
    even, lumpy = intervals.proportion(spread), intervals.proportion(clustered)
    assert even.estimate == lumpy.estimate == 0.99
    assert lumpy.high - lumpy.low > 5 * (even.high - even.low)


def test_a_perfect_score_needs_as_many_trials_as_the_gate_asks() -> None:
    """Lower end n / (n + z^2) reaches g at n = z^2 g / (1 - g): 3838 positions for 0.999."""
    z = NormalDist().inv_cdf(0.975)
    needed = math.ceil(z * z * 0.999 / 0.001)
    assert needed == 3838
    exact = [(1.0, 1.0)] * needed
    assert intervals.decide_proportion(exact, 0.999).outcome == "pass"
    short = intervals.decide_proportion(exact[:-1], 0.999)
    assert (short.outcome, short.more_texts) == ("undecided", 1)
    few = intervals.decide_proportion([(100.0, 100.0)] * 10, 0.999)
    assert (few.outcome, few.more_texts) == ("undecided", 29)


@pytest.mark.parametrize(("share", "outcome"), [(0.90, "fail"), (0.99, "pass"), (0.955, "undecided")])
def test_the_whole_interval_decides(share: float, outcome: str) -> None:
    counts = [(share * 20, 20.0)] * 50
    assert intervals.decide_proportion(counts, 0.96).outcome == outcome


def test_a_share_on_the_gate_is_never_decided() -> None:
    assert intervals.decide_proportion([(96.0, 100.0)] * 10, 0.96).more_texts is None


@given(st.floats(0.5, 0.999), st.floats(0.5, 0.999), st.integers(2, 40))
def test_the_texts_it_asks_for_do_decide(share: float, gate: float, texts: int) -> None:
    counts = [(share * 10, 10.0)] * texts
    decision = intervals.decide_proportion(counts, gate)
    if decision.more_texts is not None and decision.more_texts < 10**6:
        grown = [(share * 10, 10.0)] * (texts + decision.more_texts)
        assert intervals.decide_proportion(grown, gate).outcome != "undecided"


@pytest.mark.parametrize(
    ("texts", "exact"), [(6, 2.5706), (11, 2.2281), (21, 2.0860), (31, 2.0423), (101, 1.9840)]
)
def test_student_is_close_to_the_tables(texts: int, exact: float) -> None:
    assert intervals.student(texts) == pytest.approx(exact, rel=0.02 if texts < 10 else 0.002)


def test_one_text_has_no_interval() -> None:
    found = intervals.mean([0.5])
    assert (found.estimate, found.low, found.high) == (0.5, -math.inf, math.inf)
    assert intervals.decide_mean(found, 0.4).outcome == "undecided"


def test_a_mean_covers_the_truth_as_often_as_it_says() -> None:
    dice = random.Random(7)
    hits = 0
    for _ in range(400):
        parts: list[tuple[float, float]] = []
        for _ in range(30):
            tokens, shift = dice.randint(20, 200), dice.gauss(0, 0.5)
            parts.append((sum(1 + shift + dice.gauss(0, 1) for _ in range(tokens)), tokens))
        found = intervals.ratio(parts)
        hits += found.low <= 1 <= found.high
    # 95 % of 400 is 380; the tokens of a text share `shift`, which a count of tokens would miss.
    assert 362 <= hits <= 396


def test_a_mean_says_how_many_more_texts_it_needs() -> None:
    found = Interval(estimate=0.97, low=0.95, high=0.99, texts=100)
    decision = intervals.decide_mean(found, 0.96)
    assert (decision.outcome, decision.more_texts) == ("undecided", 300)
    assert intervals.decide_mean(found, 0.97).more_texts is None
    assert intervals.decide_mean(found, 0.94).outcome == "pass"
    assert intervals.decide_mean(found, 0.995).outcome == "fail"


def test_from_log_probabilities_to_perplexity() -> None:
    found = intervals.exponential(Interval(estimate=math.log(8), low=math.log(4), high=1e9, texts=2))
    assert (found.estimate, found.low, found.high) == (pytest.approx(8), pytest.approx(4), math.inf)


@pytest.mark.parametrize(("share", "value"), [(0.01, 1), (0.5, 50), (0.99, 99), (1.0, 100), (0.0, 1)])
def test_percentile_is_a_value_that_occurred(share: float, value: int) -> None:
    assert intervals.percentile(list(range(100, 0, -1)), share) == value

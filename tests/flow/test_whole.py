"""Answers that are shorter than asked are errors of a load, and so is a server that gives no others."""

from pathlib import Path

import pytest
from tests.flow.stand_in import plan, runner

from model_optimizer.bench.exchange import Outcome as Answer
from model_optimizer.flow.whole import is_short
from model_optimizer.tune import Order
from model_optimizer.tune.objective import Aim, score


def test_short_answers_are_failures_and_keep_no_limit(tmp_path: Path) -> None:
    made = runner(tmp_path)
    found = made(Order(number=1, plan=plan(short_every="2"), settings={}, thorough=True))
    (point,) = found.points
    assert found.state == "measured"
    assert point.errors["short"] == point.failed > 0
    assert "4 tokens where 8" in point.error_examples["short"]
    assert point.attainment == pytest.approx(point.completed / (point.completed + point.failed))
    worth = score(found.points, Aim(objective="goodput", slo=made.loads.slo))
    assert worth is not None and worth.value < 0.7 * (point.requests_per_s or 0.0)


def test_a_server_of_nothing_but_short_answers_has_failed_and_says_how(tmp_path: Path) -> None:
    found = runner(tmp_path)(Order(number=1, plan=plan(short_every="1"), settings={}, thorough=True))
    assert (found.state, found.reference) == ("failed", "short-answers")
    assert "4 tokens where 8 were asked for" in (found.because or "")


def test_whole_answers_change_nothing_and_preemptions_are_counted(tmp_path: Path) -> None:
    found = runner(tmp_path)(Order(number=1, plan=plan(preempts="1"), settings={}, thorough=True))
    assert found.points[0].failed == 0
    assert found.preemptions is not None and found.preemptions >= found.points[0].completed > 0


def test_who_counts_no_preemptions_is_not_said_to_have_none(tmp_path: Path) -> None:
    found = runner(tmp_path)(Order(number=1, plan=plan(), settings={}, thorough=True))
    assert found.state == "measured" and found.preemptions is None


@pytest.mark.parametrize(
    ("given", "short"),
    [
        ({"output_tokens": 8}, False),
        ({"output_tokens": 7}, True),
        ({"output_tokens": 0}, True),
        ({"event_tokens": (4, 4), "token_ns": (1, 2)}, False),
        ({"event_tokens": (4,), "token_ns": (1,)}, True),
        ({"token_ns": (1, 2)}, False),  # how many tokens an event carries is not known
        ({}, True),
        ({"output_tokens": 1, "error": "timeout"}, False),
    ],
)
def test_what_is_short_is_told_by_the_servers_count(given: dict[str, object], short: bool) -> None:
    base = {"index": 0, "measured": True, "scheduled_ns": 0, "sent_ns": 0, "finished_ns": 9}
    answer = Answer(**{**base, "streamed": True, "wanted_output_tokens": 8, **given})  # type: ignore[arg-type]
    assert is_short(answer) is short
    assert not is_short(Answer(**base))  # type: ignore[arg-type]

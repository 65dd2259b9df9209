"""Speculative decoding: what a step yields, and where it stops to pay."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model_optimizer.core.steps import Batch
from model_optimizer.planner.speed import roofline
from model_optimizer.planner.speed.speculative import (
    Speculation,
    Speculative,
    layer_draft,
    model_draft,
    ngram_draft,
    speculative,
)

from .speed_cases import setup

TARGET = roofline(setup("h100", "bf16", "Qwen/Qwen3-32B"))
SMALL = roofline(setup("h100", "bf16", "Qwen/Qwen3-0.6B"))


def made(acceptance: float = 0.7, tokens: int = 3, method: str = "draft") -> Speculative:
    speculation = Speculation(method=method, tokens=tokens, acceptance=acceptance)  # pyright: ignore[reportArgumentType]
    draft = model_draft(speculation, SMALL) if method == "draft" else ngram_draft(speculation)
    return speculative(TARGET, speculation, draft)


def test_a_step_yields_at_least_its_own_token() -> None:
    assert Speculation(method="ngram", tokens=4, acceptance=0).yields == 1
    assert Speculation(method="ngram", tokens=4, acceptance=1).yields == 5
    assert Speculation(method="ngram", tokens=2, acceptance=0.5).yields == pytest.approx(1.75)


@given(st.floats(0, 0.99), st.floats(0, 0.99))
def test_better_drafts_are_never_slower(one: float, other: float) -> None:
    low, high = sorted((one, other))
    assert made(high).decode_ms(4, 500) <= made(low).decode_ms(4, 500) + 1e-9


def test_drafts_that_are_never_taken_cost() -> None:
    assert made(0.0).gain(1, 500) < 1
    assert made(0.8).gain(1, 500) > 1.5


def test_at_its_break_even_nothing_is_won_or_lost() -> None:
    found = made(0.7)
    least = found.break_even_acceptance(32, 500)
    assert least is not None and 0 < least < 1
    assert made(least).gain(32, 500) == pytest.approx(1.0, abs=0.01)


def test_large_batches_leave_no_room_for_drafts() -> None:
    poor = made(0.45, tokens=5)
    most = poor.break_even_batch(500)
    assert most is not None
    assert poor.gain(most, 500) > 1 >= poor.gain(most + 1, 500)
    assert made(0.05, tokens=5).break_even_batch(500) is None


def test_prompts_take_as_long_as_without() -> None:
    prompt = Batch(tokens=1000, chunks=1, pairs=500_000)
    assert made().mixed_ms(prompt) == TARGET.mixed_ms(prompt)
    both = Batch(sequences=8, context=500, tokens=1000, chunks=1, pairs=500_000)
    assert made().mixed_ms(both) > made().decode_ms(8, 500)


def test_one_layer_and_a_head_draft_faster_than_a_model() -> None:
    speculation = Speculation(method="eagle3", tokens=3, acceptance=0.7)
    layer = layer_draft(speculation, TARGET, 64, 0.02)
    assert layer(1, 500) < model_draft(speculation, SMALL)(1, 500) < 3 * TARGET.decode_ms(1, 500)

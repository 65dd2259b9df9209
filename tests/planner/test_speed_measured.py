"""Measurements win for the same GPU, release and scheme, and for nothing else."""

from dataclasses import replace
from math import exp, log

import pytest

from model_optimizer.core import Lengths, UsageError, Workload
from model_optimizer.core.ledger import LedgerRow
from model_optimizer.core.steps import Batch
from model_optimizer.facts import measured as shipped
from model_optimizer.planner.speed import measured
from model_optimizer.system import ledger

from .speed_cases import Clock, setup

H200 = setup("h200", version="0.25.1")


def row(tpot: float = 20.0, concurrency: int = 8, **more: object) -> LedgerRow:
    base = LedgerRow(
        quantity="tpot_ms.p50",
        measured=tpot,
        unit="ms",
        model="Qwen/Qwen3-8B",
        gpu="H200 SXM 141GB",
        engine="vllm",
        version="0.25.0",
        scheme="bf16",
        workload=Workload(concurrency=concurrency, prompt_tokens=Lengths.fixed(100)),
        date="2026-11-30",
        source="ledger.jsonl",
    )
    return replace(base, **more)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    "more",
    [
        {"gpu": "H100 SXM5 80GB"},
        {"version": "0.26.0"},
        {"scheme": "fp8"},
        {"engine": "sglang"},
        {"gpus": 2},
        {"settings": {"enforce-eager": "true"}},
        {"settings": {"kv-cache-dtype": "fp8"}},
    ],
)
def test_rows_of_something_else_do_not_match(more: dict[str, object]) -> None:
    assert measured.matching([row()], H200)
    assert not measured.matching([row(**more)], H200)


def test_the_same_model_is_as_slow_as_it_was_measured() -> None:
    found = measured.correct(Clock(), [row(tpot=20.0)], H200, lambda _: 10.0)
    assert found is not None and found.kind == "measured"
    assert found.decode_ms(8, 100) == pytest.approx(2 * Clock().decode_ms(8, 100))
    assert found.mixed_ms(Batch(sequences=500, context=9)) == pytest.approx(20.0)
    assert found.explain(Batch(sequences=8)).ms == pytest.approx(20.0)


def test_between_two_loads_the_factor_lies_between() -> None:
    rows = [row(tpot=10.0, concurrency=1), row(tpot=40.0, concurrency=16)]
    found = measured.correct(Clock(), rows, H200, lambda _: 10.0)
    assert found is not None
    factors = [found.decode_ms(n, 0) / 10 for n in (1, 4, 16, 64)]
    assert factors == pytest.approx([1.0, exp(log(4) / 2), 4.0, 4.0])


def test_other_models_move_a_prediction_a_little_and_only_together() -> None:
    others = [row(tpot=30.0, model=f"other/{n}") for n in range(3)]
    assert measured.correct(Clock(), others[:2], H200, lambda _: 10.0) is None
    found = measured.correct(Clock(), others, H200, lambda _: 10.0)
    assert found is not None and found.kind == "roofline"
    assert found.decode_ms(1, 0) == pytest.approx(10 * exp(measured.OTHERS_LIMIT))
    assert "other/0" in found.provenance


def test_rows_that_cannot_be_predicted_are_left_out() -> None:
    assert measured.correct(Clock(), [row()], H200, lambda _: None) is None


def test_measurements_that_ship_have_what_the_evidence_says() -> None:
    rows = shipped.rows("H200 SXM 141GB", "vllm")
    alone = [
        r.measured
        for r in rows
        if (r.model, r.quantity, r.scheme, r.workload.concurrency)
        == ("Qwen/Qwen3-8B", "tpot_ms.mean", "bf16", 1)
    ]
    assert 5.225 in alone
    assert all(value == pytest.approx(5.225, rel=0.03) for value in alone), "two sittings agree"
    assert {r.version for r in rows} == {"0.25.1"}
    assert all(r.source.startswith("evidence/") for r in rows)
    assert not shipped.rows("H100 SXM5 80GB", "vllm")


def test_the_ledger_of_the_user_is_read_and_added_to() -> None:
    assert ledger.read() == ()
    ledger.append((row(), row(concurrency=4)))
    ledger.append((row(concurrency=2),))
    assert [r.workload.concurrency for r in ledger.read()] == [8, 4, 2]
    assert ledger.read()[0] == row()


def test_a_broken_line_of_the_ledger_is_named() -> None:
    ledger.append((row(),))
    with ledger.path().open("a") as out:
        out.write('{"quantity": 3}\n')
    with pytest.raises(UsageError) as error:
        ledger.read()
    assert "ledger.jsonl:2" in error.value.message

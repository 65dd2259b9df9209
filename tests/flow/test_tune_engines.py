"""Reduced studies of real engines on the CPU: three trials, and one round of the second look."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from model_optimizer.cli.app import app
from model_optimizer.core import codec
from model_optimizer.core.study import Lock, Study

MODEL = Path(__file__).parents[2] / "examples" / "models" / "tiny-qwen3"


def studied(folder: Path, *more: str) -> Study:
    words = ["tune", str(MODEL), "--concurrency", "2", "--prompt-tokens", "16", "--output-tokens", "4"]
    words += ["--trials", "3", "--for", "1s", "--probe", "500ms", "--finalists", "1", "--repeats", "1"]
    done = CliRunner().invoke(app, [*words, "--out", str(folder), *more], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return codec.load(folder / "study.json", Study)


@pytest.mark.engine
@pytest.mark.slow
def test_plain_pytorch(tmp_path: Path) -> None:
    study = studied(tmp_path / "s", "--engine", "pytorch", "--only", "max_batch_size,threads")
    assert len(study.trials) == 3
    assert study.trials[0].settings == study.default
    assert study.trials[0].score is not None and study.trials[0].score.value > 0
    lock = codec.load(tmp_path / "s" / "lock.json", Lock)
    assert lock.engine == "pytorch" and lock.versions["torch"]


@pytest.mark.engine
@pytest.mark.slow
def test_the_cpu_build_of_vllm(tmp_path: Path) -> None:
    study = studied(tmp_path / "s", "--engine", "vllm-cpu", "--only", "max_num_seqs")
    assert study.trials[0].kv_cache_tokens is not None
    assert study.trials[0].state == "measured"
    lock = codec.load(tmp_path / "s" / "lock.json", Lock)
    assert lock.versions["vllm-cpu"].startswith("0.32")

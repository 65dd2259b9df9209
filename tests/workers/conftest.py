"""Workers in tests: pure helpers imported directly, whole jobs run by the environment's interpreter."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import model_optimizer.workers as workers

WORKERS = Path(workers.__file__).parent
HERE = Path(__file__).parent

# Helpers import one another by file name, as they do where they run.
sys.path.append(str(WORKERS))

Drive = Callable[[list[dict[str, Any]]], list[dict[str, Any]]]


def in_environment(python: Path, *arguments: str | Path, timeout_s: int = 400) -> None:
    done = subprocess.run(
        [python, "-P", *arguments],
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"},
    )
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.fixture(scope="session")
def models(onnx_env_python: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that make_models.py fills: tiny models with random weights."""
    out = tmp_path_factory.mktemp("models")
    in_environment(onnx_env_python, HERE / "make_models.py", out)
    return out


@pytest.fixture(scope="session")
def drive(onnx_env_python: Path, tmp_path_factory: pytest.TempPathFactory) -> Drive:
    """Run several jobs in one process, which saves the imports; each answers with a result or an error."""

    def run(jobs: list[dict[str, Any]]) -> list[dict[str, Any]]:
        place = tmp_path_factory.mktemp("drive")
        (place / "jobs.json").write_text(json.dumps(jobs))
        in_environment(
            onnx_env_python, HERE / "drive.py", WORKERS, place / "jobs.json", place / "answers.json"
        )
        return json.loads((place / "answers.json").read_text())

    return run

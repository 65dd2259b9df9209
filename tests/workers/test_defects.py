"""Whole workers, run as they are in service, on input that must fail: one error and no traceback."""

import json
import os
import resource
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from .conftest import WORKERS

pytestmark = pytest.mark.engine


def run(
    python: Path, worker: str, request: dict[str, Any], place: Path, *, largest_file: int | None = None
) -> tuple[int, dict[str, Any], str]:
    (place / "request.json").write_text(json.dumps(request))

    def limit() -> None:
        if largest_file:
            resource.setrlimit(resource.RLIMIT_FSIZE, (largest_file, largest_file))

    done = subprocess.run(
        [python, "-P", WORKERS / f"{worker}.py", place / "request.json", place / "result.json"],
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
        preexec_fn=limit,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    return done.returncode, json.loads((place / "result.json").read_text())["error"], done.stderr


def request(source: Path, place: Path) -> dict[str, Any]:
    out = place / "out"
    out.mkdir()
    return {"source": str(source), "out": str(out), "task": "embed", "scheme": "fp32", "opset": 20}


def test_a_truncated_checkpoint(onnx_env_python: Path, models: Path, tmp_path: Path) -> None:
    broken = shutil.copytree(models / "bert", tmp_path / "broken")
    weights = broken / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    code, error, log = run(onnx_env_python, "onnx_export", request(broken, tmp_path), tmp_path)
    assert (code, error["reference"]) == (1, "broken-checkpoint")
    assert "Traceback" not in log


def test_a_model_without_tokenizer(onnx_env_python: Path, models: Path, tmp_path: Path) -> None:
    bare = shutil.copytree(models / "lm", tmp_path / "bare")
    (bare / "tokenizer.json").unlink()
    asked = {**request(bare, tmp_path), "precision": "fp32", "options": []}
    code, error, log = run(onnx_env_python, "onnx_genai_build", asked, tmp_path)
    assert (code, error["reference"]) == (1, "no-tokenizer")
    assert "Traceback" not in log


def test_a_full_disk(onnx_env_python: Path, models: Path, tmp_path: Path) -> None:
    """No file may grow past 64 KiB, which the weights do: the system's answer is like that of a full disk."""
    asked = {**request(models / "lm", tmp_path), "precision": "fp32", "options": []}
    code, error, _ = run(onnx_env_python, "onnx_genai_build", asked, tmp_path, largest_file=1 << 16)
    assert (code, error["reference"]) == (1, "disk-full")

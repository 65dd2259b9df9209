"""Checkpoints of ModelOpt in plain torch: which are expanded, and to which numbers."""

import json
import subprocess
from pathlib import Path
from typing import Any

import _quality_modelopt as room
import pytest
from _contract import Failure

HERE = Path(__file__).parent


@pytest.mark.engine
def test_numbers_come_back_as_their_scales_say(onnx_env_python: Path) -> None:
    command = [onnx_env_python, "-P", HERE / "check_modelopt.py", Path(room.__file__).parent]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-2000:]


def test_it_describes_itself_in_either_place(tmp_path: Path) -> None:
    assert room.described(tmp_path, {}) is None
    assert room.described(tmp_path, {"quantization_config": {"quant_method": "awq"}}) is None
    said = {"quant_method": "modelopt", "quant_algo": "FP8"}
    assert room.described(tmp_path, {"quantization_config": said}) == said
    (tmp_path / room.SIDECAR).write_text(json.dumps({"quantization": {"quant_algo": "FP8"}}))
    assert room.described(tmp_path, {}) == said


def test_a_mixture_of_known_words() -> None:
    layers = {"a": {"quant_algo": "FP8"}, "b": {"quant_algo": "NVFP4"}}
    assert room.algorithms({"quant_algo": "MIXED_PRECISION", "quantized_layers": layers}) == {"FP8", "NVFP4"}
    assert room.algorithms({"quant_algo": "FP8_PER_CHANNEL_PER_TOKEN"}) == {"FP8_PER_CHANNEL_PER_TOKEN"}


@pytest.mark.parametrize(
    ("said", "named"),
    [
        ({"quant_algo": "W4A16_AWQ"}, "W4A16_AWQ"),
        ({"quantized_layers": {"a": {"quant_algo": "FP8"}, "b": {"quant_algo": "MXFP8"}}}, "MXFP8"),
        ({"quant_algo": "FP8", "kv_cache_quant_algo": "FP8"}, "KV cache"),
    ],
)
def test_what_is_not_expanded_says_which_engine_runs_it(said: dict[str, Any], named: str) -> None:
    with pytest.raises(Failure) as caught:
        room.algorithms(said)
    assert named in caught.value.message
    assert any("vLLM" in hint for hint in caught.value.hint)

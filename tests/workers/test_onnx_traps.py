"""Traps of the exporter and of 16 bits that are known by name."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

import model_optimizer.workers as workers

pytestmark = pytest.mark.engine

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def traps(onnx_env_python: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    words = [
        onnx_env_python,
        "-P",
        HERE / "onnx_traps.py",
        Path(workers.__file__).parent,
        tmp_path_factory.mktemp("traps"),
    ]
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(words, capture_output=True, text=True, timeout=300, check=False, env=env)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


def test_an_output_that_is_called_like_a_value_inside(traps: dict[str, Any]) -> None:
    found = traps["name_twice"]
    assert found["outputs"] == ["embedding"]
    assert found["distance"] < 1e-5


def test_weights_lie_beside_the_graph(traps: dict[str, Any]) -> None:
    """So that two gigabytes are no limit."""
    assert traps["name_twice"]["external"]


def test_masks_survive_16_bits(traps: dict[str, Any]) -> None:
    found = traps["mask_in_16_bits"]
    assert found["finite"]
    assert found["distance"] < 0.01


def test_angles_and_norms_stay_in_32_bits_with_few_casts(traps: dict[str, Any]) -> None:
    """One cast down and one up a product, none behind another."""
    found = traps["angles_and_squares_in_16_bits"]
    assert found["distance"] < 2e-3
    assert found["casts"].count(10) <= 2 and found["twice"] == []
    assert found["own"] == 2  # the weights of the two products, and nothing else


def test_fp16_is_rounded_where_the_runtime_would_not(traps: dict[str, Any]) -> None:
    assert traps["rounding_is_seen"]["plain"] == 0.0


def test_a_dimension_that_was_fixed_is_found(traps: dict[str, Any]) -> None:
    found = traps["fixed_dimension"]
    assert found["error"] == "export-failed" and "fixed" in found["message"]

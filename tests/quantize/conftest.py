"""Lets tests import quantize_served.py by its name, and keeps what originals answered for all of them."""

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parent))


@pytest.fixture(scope="session")
def answers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the answers of originals lie, under a key of model and texts: each is asked once."""
    return tmp_path_factory.mktemp("answers")

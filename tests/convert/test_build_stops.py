"""A build that is stopped ends soon and leaves nothing."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from model_optimizer.core import MoptError
from model_optimizer.system import environments

pytestmark = [pytest.mark.engine, pytest.mark.slow]

LIMIT_S = 120


def test_ctrl_c_ends_a_build(minilm: Path, tmp_path: Path) -> None:
    """A graph of a real size, stopped as soon as the builder has begun."""
    try:
        environments.ensure("tensorrt_rtx", progress=lambda _text, _share: None)
    except MoptError as error:
        pytest.fail(error.message)
    out = tmp_path / "engine"
    words = [sys.executable, "-m", "model_optimizer", "convert", minilm, "--to", "tensorrt-rtx", "--out", out]
    running = subprocess.Popen(
        [*map(str, words)], stderr=subprocess.PIPE, text=True, env=dict(os.environ), start_new_session=True
    )
    assert running.stderr is not None
    begun = False
    for line in running.stderr:
        if line.startswith("building:"):
            begun = True
            running.send_signal(signal.SIGINT)
            break
    until = time.monotonic() + LIMIT_S
    while running.poll() is None and time.monotonic() < until:
        time.sleep(0.1)
    running.stderr.close()
    assert begun
    assert running.returncode == 130
    assert list(tmp_path.iterdir()) == []

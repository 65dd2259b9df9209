"""Servers that go on without a terminal."""

import os
import sys
from pathlib import Path

import pytest

from model_optimizer.serve import Served, attach, forget, list_served, remember
from model_optimizer.system import processes
from model_optimizer.system.processes import Running


@pytest.fixture
def program(tmp_path: Path):
    running = processes.start([sys.executable, "-c", "import time; time.sleep(60)"], log=tmp_path / "log")
    yield running
    running.stop(grace_s=0.5)


def served(running: Running, **changes: object) -> Served:
    known: dict[str, object] = {
        "served_name": "m",
        "url": "http://127.0.0.1:8000",
        "pid": running.pid,
        "started_at": running.started_at,
        "engine": "onnxruntime",
        "scheme": "int8",
        "model": "/models/m",
        "log": str(running.log),
    }
    return Served(**{**known, **changes})  # type: ignore[arg-type]


def test_a_server_is_found_and_stopped_later(program: Running, tmp_path: Path) -> None:
    folder = tmp_path / "servers"
    remember(folder, served(program))
    (found,) = list_served(folder)
    assert found.served_name == "m"
    handle = attach(found)
    assert handle is not None
    assert handle.alive()
    handle.stop()
    assert program.poll() is not None
    forget(folder, found)
    assert not list(folder.iterdir())


def test_a_number_that_was_given_away_again_is_not_the_server(program: Running, tmp_path: Path) -> None:
    """The process that lives under the number of a server that is gone must survive `--stop`."""
    folder = tmp_path / "servers"
    stranger = served(program, started_at=program.started_at - 3600)
    remember(folder, stranger)
    assert attach(stranger) is None
    assert list_served(folder) == ()
    assert not list(folder.iterdir())
    os.kill(program.pid, 0)


def test_a_server_that_ended_is_forgotten(program: Running, tmp_path: Path) -> None:
    folder = tmp_path / "servers"
    remember(folder, served(program))
    program.stop(grace_s=0.5)
    assert list_served(folder) == ()
    assert not list(folder.iterdir())


def test_files_that_are_not_ours_are_left_alone(tmp_path: Path) -> None:
    folder = tmp_path / "servers"
    folder.mkdir()
    (folder / "7.json").write_text("{}")
    (folder / "8.json").write_text("not json")
    assert list_served(folder) == ()
    assert len(list(folder.iterdir())) == 2


def test_no_folder_means_no_servers(tmp_path: Path) -> None:
    assert list_served(tmp_path / "servers") == ()

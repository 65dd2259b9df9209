"""Who watches a server: one that has no address yet, one that says nothing, one that ends."""

import os
import sys
from pathlib import Path

import pytest

from model_optimizer.cli import serve_supervisor as room
from model_optimizer.cli.serve_list import _chosen, row_of
from model_optimizer.cli.serve_records import folder
from model_optimizer.core import ToolError, UsageError
from model_optimizer.serve import Served, list_served, remember
from model_optimizer.system import processes


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOPT_HOME", str(tmp_path / "mopt"))


def served(url: str, log: Path) -> Served:
    """This process is both: it is there as long as the test runs."""
    return Served(
        served_name="m", url=url, pid=os.getpid(), started_at=processes.own_start(), engine="vllm",
        scheme="bf16", model="m", log=str(log), supervisor=os.getpid(),
        supervisor_started_at=processes.own_start(),
    )  # fmt: skip


def test_a_server_is_waited_for_until_it_has_an_address(tmp_path: Path) -> None:
    """A container is written down when it is made, before it answers."""
    remember(folder(), served("", tmp_path / "log"))
    turns: list[int] = []

    def each() -> None:
        turns.append(1)
        if len(turns) == 2:
            remember(folder(), served("http://127.0.0.1:8123", tmp_path / "log"))

    found = room._wait_for(os.getpid(), lambda: None, each)
    assert found is not None and found.url == "http://127.0.0.1:8123"
    assert len(turns) == 2


def test_a_server_without_an_address_is_listed_and_not_asked(tmp_path: Path) -> None:
    remember(folder(), served("", tmp_path / "log"))
    (kept,) = list_served(folder())
    row = row_of(kept)
    assert (row.running, row.healthy) == (True, False)


def test_an_empty_word_stops_no_server_that_has_no_address_yet(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no server of mopt is ``"):
        _chosen((served("", tmp_path / "log"),), "")


def test_a_supervisor_that_ends_before_is_no_server(tmp_path: Path) -> None:
    remember(folder(), served("", tmp_path / "log"))
    codes = iter((None, None, 3))
    assert room._wait_for(os.getpid(), lambda: next(codes), lambda: None) is None


def test_a_silent_supervisor_is_starting(tmp_path: Path) -> None:
    log = tmp_path / "supervisor.log"
    assert room._last_line(log) == "starting"
    log.write_text("")
    assert room._last_line(log) == "starting"
    log.write_text("loading weights\n\n")
    assert room._last_line(log) == "loading weights"


def test_one_that_ends_without_a_word_is_one_error() -> None:
    with pytest.raises(ToolError, match=r"ended without a word \(killed by SIGKILL\)") as found:
        room._say_why((), -9)
    assert found.value.hint


@pytest.mark.parametrize(("code", "exits"), [(3, 3), (5, 5), (-15, 5)])
def test_what_one_said_last_is_shown(code: int, exits: int, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as found:
        room._say_why(("error[no-gpu]: none", "hint: get one"), code)
    assert found.value.code == exits
    assert capsys.readouterr().err == "error[no-gpu]: none\nhint: get one\n"


def test_a_real_one_that_says_nothing(tmp_path: Path) -> None:
    log = tmp_path / "supervisor.log"
    running = processes.start([sys.executable, "-c", "import os; os._exit(0)"], log=log)
    assert room._wait_for(running.pid, running.poll, lambda: None) is None
    with pytest.raises(ToolError, match="without a word"):
        room._say_why(processes.tail(log, 40, from_byte=running.log_from), running.poll() or 1)

"""Errors of outside tools say what their log shows."""

import subprocess
import sys
from pathlib import Path

from model_optimizer.core import ToolError
from model_optimizer.diagnose import explained
from model_optimizer.diagnose import tool_errors as module

PORT = "OSError: [Errno 98] Address already in use"


def failed(log: Path | None, *cause: str) -> ToolError:
    hint = (f"the whole log: {log}",) if log else ()
    return ToolError("the server ended", cause=cause, hint=hint, reference="worker-crashed")


def test_the_log_that_a_hint_names_is_read(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_text("x\n" * 10 + PORT + "\n" + "Traceback\n")
    error = explained(failed(log, "Traceback"))
    assert isinstance(error, ToolError)
    assert (error.message, error.reference) == ("the server ended", "worker-crashed")
    assert error.cause[0].startswith("vllm-port: The port is taken") and error.cause[1] == "Traceback"
    assert explained(error) is error, "once is enough"
    assert error.hint[0].startswith("Find who has it")
    assert error.hint[-1] == f"mopt diagnose {log} shows the lines"


def test_the_lines_of_the_error_are_enough() -> None:
    assert explained(failed(None, PORT)).cause[0].startswith("vllm-port: ")


def test_what_is_not_sure_changes_nothing(tmp_path: Path) -> None:
    for error in (
        failed(None, "who knows"),
        failed(tmp_path / "none.log"),
        failed(None, "CUDA error: misaligned address"),
    ):
        assert explained(error) is error


def test_the_command_line_explains_every_error_of_a_tool() -> None:
    code = (
        "import sys, click\n"
        "from model_optimizer.cli import app, main\n"
        "from model_optimizer.core import ToolError\n"
        f"def fail(*a, **k): raise ToolError('the server ended', cause=({PORT!r},))\n"
        "import model_optimizer.cli.app as module\n"
        "module.app = fail\n"
        "main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 5
    assert "cause: vllm-port: The port is taken" in done.stderr


def test_every_error_that_names_a_log_names_it_as_it_is_looked_for() -> None:
    """The environments' workers, pip, and the servers: quantize, convert, verify, serve and tune run through them."""
    source = Path(module.__file__).parents[1]
    naming = {
        str(path.relative_to(source)): text.count("the whole log: {")
        for path in source.rglob("*.py")
        if "whole log" in (text := path.read_text("utf-8"))
    }
    assert naming.pop("diagnose/tool_errors.py") == 0
    assert naming.pop("diagnose/needed.py") == 0
    assert set(naming) >= {"serve/run.py", "system/environments/worker.py", "system/environments/pip.py"}
    assert all(naming.values()), naming

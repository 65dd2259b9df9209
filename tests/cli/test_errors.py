"""Errors as a user meets them: one message, hints, the right exit code, JSON where asked."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from inline_snapshot import snapshot

from model_optimizer.cli.render import error_text, printable
from model_optimizer.core import HostError, NoFeasiblePlan


def mopt(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "model_optimizer", *arguments], capture_output=True, text=True, check=False
    )


def test_an_error_says_what_why_and_what_next() -> None:
    error = NoFeasiblePlan(
        "nothing serves `m` on RTX 4060 Laptop as asked",
        cause=("vllm, bf16: 15.3 GiB of weights leave no room for one request",),
        hint=("use a smaller model", "raise --vram"),
    )
    assert error_text(error) == snapshot("""\
error[no-feasible-plan]: nothing serves `m` on RTX 4060 Laptop as asked
cause: vllm, bf16: 15.3 GiB of weights leave no room for one request
hint: use a smaller model
hint: raise --vram
""")


def test_text_from_outside_cannot_drive_the_terminal() -> None:
    assert printable("a\x1b[31mred\x07") == "a\\x1b[31mred\\x07"
    assert "\x1b" not in error_text(HostError("bad \x1b]0;title\x07"))


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (("frobnicate",), 2, "there is no command `frobnicate`"),
        (("doctr",), 2, "did you mean `doctor`?"),
        (("doctor", "--host", "/nowhere.json"), 2, "`/nowhere.json` cannot be read"),
        (("doctor", "--colour"), 2, "No such option"),
    ],
)
def test_wrong_usage_exits_with_two(arguments: tuple[str, ...], code: int, text: str) -> None:
    done = mopt(*arguments)
    assert done.returncode == code
    assert text in done.stderr
    assert "hint:" in done.stderr or "did you mean" in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize("arguments", [(), ("env",), ("serve", "--help")])
def test_help_is_lines_and_not_one_message(arguments: tuple[str, ...]) -> None:
    done = mopt(*arguments)
    shown = done.stderr or done.stdout
    assert done.returncode == (0 if "--help" in arguments else 2)
    assert shown.startswith("Usage: mopt") and "\\n" not in shown and "error[" not in shown


def test_errors_are_json_where_json_was_asked() -> None:
    done = mopt("doctor", "--host", "/nowhere.json", "--json")
    assert done.returncode == 2
    body = json.loads(done.stdout)["error"]
    assert body["reference"] == "usage"
    assert set(body) == {"reference", "message", "cause", "hint"}


def test_a_bug_keeps_its_traceback_and_exits_with_seventy() -> None:
    code = (
        "import sys; sys.argv = ['mopt', 'doctor']\n"
        "from model_optimizer import api\n"
        "def broken(**_): raise RuntimeError('our fault')\n"
        "api.probe = broken\n"
        "from model_optimizer.cli import main\n"
        "main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 70
    assert "RuntimeError: our fault" in done.stderr
    assert "This is a bug in mopt" in done.stderr


def test_help_lists_commands_by_group() -> None:
    done = mopt("--help")
    assert done.returncode == 0
    assert "Understand:" in done.stdout
    assert "doctor" in done.stdout


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no full device here")
@pytest.mark.parametrize("more", [(), ("--json",)])
def test_an_answer_that_cannot_be_written_is_an_error_where_it_can_be_read(more: tuple[str, ...]) -> None:
    with Path("/dev/full").open("w") as full:
        command = [sys.executable, "-m", "model_optimizer", "env", "list", *more]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 3
    assert done.stderr.startswith("error[host-not-ready]: the answer cannot be written\n")
    assert "Traceback" not in done.stderr

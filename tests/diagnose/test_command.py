"""The command line: screens, JSON, exit codes, bad input."""

import gzip
import json
import subprocess
import sys
from pathlib import Path

import pytest
from inline_snapshot import snapshot

from model_optimizer.cli.render_diagnose import diagnosis_json, diagnosis_text
from model_optimizer.diagnose import of_command, of_text

LOG = """\
(APIServer pid=411) INFO 11-30 08:11:01 [api_server.py:1839] vLLM API server version 0.25.1
NCCL INFO NET/Plugin: No plugin found (libnccl-net.so), using internal implementation
(EngineCore pid=422) ERROR 11-30 08:11:09 [core.py:710] EngineCore failed to start.
(EngineCore pid=422) ERROR 11-30 08:11:09 [core.py:710] ValueError: Free memory on device cuda:0 (3.22/4.0 GiB) on startup is less than desired GPU memory utilization (0.9, 3.6 GiB). Decrease GPU memory utilization or reduce GPU memory used by other processes.
(APIServer pid=411) RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}
"""


def mopt(*words: str, text: str | bytes | None = None) -> subprocess.CompletedProcess[str]:
    data = text.encode() if isinstance(text, str) else text
    done = subprocess.run(
        [sys.executable, "-m", "model_optimizer", "diagnose", *words],
        input=data or b"",
        capture_output=True,
        check=False,
    )
    return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())


def test_the_screen_of_a_clear_case() -> None:
    assert diagnosis_text(of_text(LOG.splitlines())) == snapshot("""\
vllm-free-memory (vllm), confidence high
  At its start vLLM found less free GPU memory than the share it is told to take: another process,
  what is left of an earlier engine, or a desktop uses the GPU. 3.22 of 4.0 GiB are free, 3.6 GiB
  wanted.

Shown by:
        4  (EngineCore pid=422) ERROR 11-30 08:11:09 [core.py:710] ValueError: Free memory on device cuda:0 (3.22/4.0 GiB) on startup is less than desired GPU memory utilization (0.9, 3.6 GiB). Decrease GPU memory utilization or reduce GPU memory used by other processes.

What to do:
- Find and stop what is left of earlier engines (processes called VLLM::EngineCore).
- Or set --gpu-memory-utilization below free/total, with half a GiB to spare.

What confirms it:
  nvidia-smi --query-compute-apps=pid,name,used_memory --format=csv

Says only that something failed:
  vllm-engine-fatal, line 3
  vllm-engine-init, line 5

Harmless:
  nccl-plugin-benign, line 2

5 lines read
""")


def test_the_screen_of_a_case_that_is_not_clear() -> None:
    lines = LOG.splitlines()
    del lines[3]
    assert diagnosis_text(of_text([*lines, "ValueError: the frobnicator is upside down"])) == snapshot("""\
No cause can be named from this log.

Says only that something failed:
  vllm-engine-fatal, line 3
  vllm-engine-init, line 4

Harmless:
  nccl-plugin-benign, line 2

Errors that are not known here:
        5  ValueError: the frobnicator is upside down

What to send:
- the errors that are not known here (line 5), with the 40 lines before them
- start it again with VLLM_LOGGING_LEVEL=DEBUG, and once with --enforce-eager to compare
- start it again with NCCL_DEBUG=INFO; the first NCCL WARN of each rank names the reason
- `mopt doctor --save host.json`, and diagnose again with --host host.json

5 lines read
""")


def test_json_has_the_promised_fields() -> None:
    body = json.loads(diagnosis_json(of_text(LOG.splitlines())))
    assert {"id", "layer", "cause", "fix", "confidence", "evidence", "probe"} <= set(body["primary"])
    assert body["primary"]["evidence"][0]["line"] == 4
    assert body["primary"]["values"] == {"free": "3.22", "total": "4.0", "share": "0.9", "want": "3.6"}
    assert [b["id"] for b in body["benign"]] == ["nccl-plugin-benign"]
    assert body["schema"] == "diagnosis/1" and body["contributing"] == []
    assert json.loads(diagnosis_json(of_text([])))["primary"] is None


@pytest.mark.parametrize("how", ["file", "gzip", "utf16", "stdin", "dash"])
def test_a_log_from_anywhere(how: str, tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_bytes(
        {"gzip": gzip.compress(LOG.encode()), "utf16": LOG.encode("utf-16")}.get(how, LOG.encode())
    )
    words = {"stdin": [], "dash": ["-"]}.get(how, [str(log)])
    done = mopt(*words, "--json", text=LOG if how in ("stdin", "dash") else None)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["primary"]["id"] == "vllm-free-memory"


def test_abstaining_is_no_failure_unless_strict() -> None:
    assert mopt("-", text="all is well\n").returncode == 0
    assert mopt("-", "--strict", text="all is well\n").returncode == 1
    assert mopt("-", "--strict", text=LOG).returncode == 0


@pytest.mark.parametrize(
    ("words", "text", "says"),
    [
        (["/nowhere/x.log"], None, "cannot be read"),
        (["a.log", "b.log"], None, "name one log"),
        (["--run"], None, "takes a command"),
        (["--run", "--pid", "1", "--", "true"], None, "takes a command"),
        (["-"], b"\x7fELF\x02\x01" + bytes(range(256)), "is not a log"),
        (["-", "--host", "/nowhere/host.json"], b"x", "cannot be read"),
        (["-", "--after", "soon"], b"x", "soon"),
    ],
)
def test_bad_input_is_one_clear_error(words: list[str], text: bytes | None, says: str) -> None:
    done = mopt(*words, text=text)
    assert done.returncode == 2
    assert says in done.stderr and "Traceback" not in done.stderr and done.stdout == ""


def test_escape_codes_are_never_echoed() -> None:
    done = mopt(
        "-",
        text="\x1b]0;pwned\x07ValueError: \x1b[2J\x9b31m gone \x08\x08 \x1b[31m" + "Address already in use\n",
    )
    assert done.returncode == 0
    assert not any(c in done.stdout for c in "\x1b\x9b\x07\x08")
    ran = mopt("--run", "--", "printf", "\\033[2Jevil\\n")
    assert "\x1b" not in ran.stderr + ran.stdout and "evil" in ran.stderr


def test_a_command_is_run_and_its_failure_explained() -> None:
    done = mopt(
        "--run",
        "--json",
        "--",
        "sh",
        "-c",
        "echo out; echo 'libcuda.so.1: cannot open shared object file' >&2; exit 3",
    )
    assert done.returncode == 5
    body = json.loads(done.stdout)
    assert body["primary"]["id"] == "cuda-libcuda-missing"
    assert body["command"]["exit_code"] == 3
    assert "out" in done.stderr.splitlines()


def test_a_command_that_succeeds_has_no_cause() -> None:
    done = mopt("--run", "--", "echo", "Address already in use")
    assert done.returncode == 0
    assert done.stdout.startswith("The command succeeded.")


def test_a_command_that_is_killed_says_so() -> None:
    found = of_command(["sh", "-c", "kill -9 $$"], on_line=lambda _: None)
    assert found.command is not None and found.command.exit_code == -9
    assert found.primary is not None and found.primary.id == "host-sigkill"


def test_a_command_that_does_not_exist_is_an_error_of_the_machine() -> None:
    done = mopt("--run", "--", "no-such-program-anywhere")
    assert done.returncode == 3 and "no-such-program-anywhere" in done.stderr

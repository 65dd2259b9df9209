"""`mopt serve` as a person uses it."""

import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from inline_snapshot import snapshot

from model_optimizer.cli import render_serve
from model_optimizer.core import Launch
from model_optimizer.serve import Served
from model_optimizer.serve.printed import Compared
from model_optimizer.system import processes

from .wire import get, post

SERVED = Served(
    served_name="tiny",
    url="http://127.0.0.1:8000",
    pid=4711,
    started_at=1.0,
    engine="onnxruntime",
    scheme="int8",
    model="/models/tiny",
    log="/home/me/servers/tiny/serve.log",
)


def mopt(*words: str | Path, env: dict[str, str] | None = None) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "model_optimizer", "serve", *map(str, words)]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=120, check=False, env={**os.environ, **(env or {})}
    )


# -- screens


def test_ready_screen() -> None:
    assert render_serve.ready_text(SERVED, "generate", 2**28, keyed=False, detached=False) == snapshot("""\
tiny is served at http://127.0.0.1:8000
  onnxruntime, int8, 256 MiB of memory, pid 4711
  log: /home/me/servers/tiny/serve.log

curl http://127.0.0.1:8000/v1/completions -H 'Content-Type: application/json' -d '{"model": "tiny", "prompt": "Once upon a time", "max_tokens": 32}'

Ctrl-C stops it.
""")


def test_ready_screen_of_a_detached_embedding_server_with_a_key() -> None:
    assert render_serve.ready_text(SERVED, "embed", None, keyed=True, detached=True) == snapshot("""\
tiny is served at http://127.0.0.1:8000
  onnxruntime, int8, memory unknown, pid 4711
  log: /home/me/servers/tiny/serve.log

curl http://127.0.0.1:8000/v1/embeddings -H 'Content-Type: application/json' -H "Authorization: Bearer $MOPT_API_KEY" -d '{"model": "tiny", "input": "a sentence"}'

stop it with: mopt serve --stop 4711
""")


def test_ready_screen_with_what_the_start_showed() -> None:
    notes = [
        render_serve.compared_text(Compared(quantity="kv_cache_tokens", printed=814368, predicted=812000)),
        render_serve.compared_text(Compared(quantity="kv_cache_tokens", printed=1000, predicted=1100)),
        render_serve.compared_text(Compared(quantity="max_concurrency", printed=99.41, predicted=99.414)),
        render_serve.compared_text(Compared(quantity="max_concurrency", printed=99.41)),
    ]
    served = dataclasses.replace(SERVED, container="0123456789abcdef", runtime="docker")
    text = render_serve.ready_text(served, "generate", None, keyed=False, detached=False, notes=notes)
    assert text.splitlines()[1:7] == snapshot(
        [
            "  onnxruntime, int8, memory unknown, container 0123456789ab",
            "  KV cache: 814,368 tokens (predicted 812,000, 0.3 % too few)",
            "  KV cache: 1,000 tokens (predicted 1,100, 10.0 % too many)",
            "  requests of full length at once: 99.41 (as predicted)",
            "  requests of full length at once: 99.41 (not predicted)",
            "  log: /home/me/servers/tiny/serve.log",
        ]
    )


def test_status_screen() -> None:
    watched = dataclasses.replace(SERVED, supervisor=4700, starts=3)
    rows = [
        render_serve.Row(served=SERVED, healthy=False, memory_bytes=2**28),
        render_serve.Row(served=watched, healthy=True, memory_bytes=2**28),
        render_serve.Row(served=watched, healthy=False, memory_bytes=None, running=False),
    ]
    assert render_serve.status_text(rows) == snapshot("""\
 pid  model  url                    engine       scheme   memory  health          watched by
----  -----  ---------------------  -----------  ------  -------  --------------  -----------------
4711  tiny   http://127.0.0.1:8000  onnxruntime  int8    256 MiB  no answer       itself
4711  tiny   http://127.0.0.1:8000  onnxruntime  int8    256 MiB  ok              pid 4700, start 3
4711  tiny   http://127.0.0.1:8000  onnxruntime  int8    unknown  between starts  pid 4700, start 3
""")
    assert render_serve.status_text([]) == snapshot("no server of `mopt serve` is running\n")


def test_a_name_with_a_quote_stays_one_word_of_the_shell() -> None:
    import shlex

    nasty = dataclasses.replace(SERVED, served_name="it's; rm -rf /")
    words = shlex.split(render_serve.curl(nasty, "generate", keyed=False))
    assert json.loads(words[-1])["model"] == "it's; rm -rf /"
    assert words[0] == "curl"


@pytest.mark.parametrize(("host", "keyed", "warns"), [("127.0.0.1", False, False), ("0.0.0.0", True, False), ("0.0.0.0", False, True)])  # fmt: skip
def test_a_server_for_everyone_without_a_key_is_warned_of(host: str, keyed: bool, warns: bool) -> None:
    assert (render_serve.exposed_text(host, keyed=keyed) is not None) is warns


def test_dry_run_of_an_engine_with_its_own_command() -> None:
    from .test_target import a_plan

    launch = Launch(environment="e", arguments=("vllm", "serve", "a b"), env={"A": "1"})
    assert render_serve.launch_text(a_plan(), launch) == snapshot("""\
environment: e
variable: A=1
command: python -m vllm serve 'a b'
max_batch_size = 8 (derived: so)
""")


# -- without an engine


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        ((), 2, "nothing to serve was named"),
        (("--status", "--stop"), 2, "exclude each other"),
        (("./nowhere",), 2, "nowhere"),
        (("--set", "threads", "x"), 2, "`--set threads` is not NAME=VALUE"),
        (("--stop", "17"), 2, "no server of mopt is `17`"),
        (("--port", "80", "x"), 2, "--port"),
    ],
)
def test_wrong_usage(words: Sequence[str], code: int, says: str) -> None:
    done = mopt(*words)
    assert done.returncode == code
    assert says in done.stderr
    assert "Traceback" not in done.stderr


def test_status_of_nothing() -> None:
    assert mopt("--status").stdout == "no server of `mopt serve` is running\n"
    assert json.loads(mopt("--status", "--json").stdout) == {"servers": []}


@pytest.mark.parametrize("which", [(), ("all",)])
def test_stop_of_nothing(which: tuple[str, ...]) -> None:
    done = mopt("--stop", *which)
    assert (done.returncode, done.stdout) == (0, "no server of `mopt serve` is running\n")


# -- with one


@pytest.mark.engine
def test_detach_find_ask_and_stop(genai_model: Path, mopt_home: Path) -> None:
    done = mopt(genai_model, "--detach", "--json", env={"MOPT_API_KEY": "a-secret-key"})
    assert done.returncode == 0, done.stderr
    served = json.loads(done.stdout)
    try:
        (found,) = json.loads(mopt("--status", "--json").stdout)["servers"]
        assert (found["pid"], found["url"], found["healthy"]) == (served["pid"], served["url"], True)
        assert found["memory_bytes"] > 10_000_000
        body = {"prompt": "fox", "max_tokens": 2}
        assert post(served["url"], "/v1/completions", body)[0] == 401
        assert post(served["url"], "/v1/completions", body, key="a-secret-key")[0] == 200
    finally:
        stopped = mopt("--stop")
    assert stopped.stdout == f"stopped {served['served_name']} (pid {served['pid']})\n"
    assert processes.attach(served["pid"], served["started_at"]) is None
    assert not any((mopt_home / "servers").iterdir())
    assert "a-secret-key" not in done.stdout + done.stderr


@pytest.mark.engine
def test_ctrl_c_stops_a_server_in_the_foreground(genai_model: Path) -> None:
    program = subprocess.Popen(
        [sys.executable, "-m", "model_optimizer", "serve", genai_model, "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # A shell that starts programs in the background has them ignore Ctrl-C.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    assert program.stdout
    text = ""
    while not text.endswith("}\n"):
        text += program.stdout.readline()
    served = json.loads(text)
    assert get(served["url"], "/health")[0] == 200
    program.send_signal(signal.SIGINT)
    _out, err = program.communicate(timeout=30)
    assert program.returncode == 0
    assert err.endswith("stopped\n")
    assert processes.attach(served["pid"], served["started_at"]) is None


@pytest.mark.engine
def test_a_server_that_dies_in_the_foreground_is_an_error(genai_model: Path) -> None:
    program = subprocess.Popen(
        [sys.executable, "-m", "model_optimizer", "serve", genai_model, "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert program.stdout
    text = ""
    while not text.endswith("}\n"):
        text += program.stdout.readline()
    os.kill(json.loads(text)["pid"], signal.SIGKILL)
    out, _err = program.communicate(timeout=30)
    assert program.returncode == 5
    assert json.loads(out)["error"]["reference"] == "worker-crashed"


@pytest.mark.engine
def test_dry_run_starts_nothing(genai_model: Path) -> None:
    done = mopt(genai_model, "--dry-run", "--max-num-seqs", "3", "--set", "threads=1")
    assert done.returncode == 0
    assert "worker: serve_generate" in done.stdout
    assert "max_batch_size = 3 (user: named on the command line)" in done.stdout
    assert '"threads": 1' in done.stdout


@pytest.mark.engine
@pytest.mark.parametrize("model", ["genai_model", "minilm_onnx"])
def test_a_server_does_not_outlive_a_program_that_is_killed(
    model: str, request: pytest.FixtureRequest
) -> None:
    program = subprocess.Popen(
        [sys.executable, "-m", "model_optimizer", "serve", request.getfixturevalue(model), "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert program.stdout
    text = ""
    while not text.endswith("}\n"):
        text += program.stdout.readline()
    served = json.loads(text)
    running = processes.attach(served["pid"], served["started_at"])
    assert running is not None
    program.kill()
    program.communicate(timeout=30)
    for _ in range(300):
        if not running.family():
            break
        time.sleep(0.1)
    assert not running.family()


def test_the_guide_speaks_of_options_that_exist() -> None:
    import re

    from model_optimizer.cli.commands.serve import COMMAND as command

    guide = (Path(__file__).parents[2] / "docs" / "guides" / "serve.md").read_text()
    known = {option for parameter in command.params for option in parameter.opts}
    elsewhere = {"--to"}  # of `mopt deploy`
    said = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", guide))
    assert said - elsewhere <= known
    assert {"--restart", "--adapt", "--container", "--start-limit"} <= said

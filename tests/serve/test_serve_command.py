"""`mopt serve` with a program that plays llama-server: restarts, crash loops, other terminals, Ctrl-C twice."""

import json
import os
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from tests.system.test_gguf_header import made

from .wire import get, post

HERE = Path(__file__).parent


@pytest.fixture
def played(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The file that says how the server behaves, one word a start. Whatever a test leaves is stopped."""
    tools = tmp_path / "bin"
    tools.mkdir()
    tool = tools / "llama-server"
    tool.write_text(f'#!/bin/sh\nexec {sys.executable} {HERE / "played_engine.py"} llama_cpp "$@"\n')
    tool.chmod(tool.stat().st_mode | stat.S_IXUSR)
    script = tmp_path / "played"
    script.write_text("good")
    monkeypatch.setenv("PLAYED", str(script))
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    monkeypatch.setenv("MOPT_HOME", str(tmp_path / "mopt"))
    monkeypatch.delenv("MOPT_API_KEY", raising=False)
    (tmp_path / "tiny.gguf").write_bytes(made())
    yield script
    mopt("--stop", "all")


def mopt(*words: str | Path) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "model_optimizer", "serve", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


class Terminal:
    """`mopt serve` in a terminal of its own, which hears Ctrl-C."""

    def __init__(self, *words: str | Path) -> None:
        self.program = subprocess.Popen(
            [sys.executable, "-m", "model_optimizer", "serve", *map(str, words), "--json"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        )

    def served(self) -> dict[str, object]:
        assert self.program.stdout
        text = ""
        while not text.endswith("}\n"):
            line = self.program.stdout.readline()
            assert line, self.program.stderr.read() if self.program.stderr else ""
            text += line
        return json.loads(text)

    def end(self, number: int | None = None) -> tuple[int, str, str]:
        if number is not None:
            self.program.send_signal(number)
        out, err = self.program.communicate(timeout=60)
        return self.program.returncode, out, err


def until(true: Callable[[], object], seconds: float = 300.0) -> object:
    end = time.monotonic() + seconds
    while not (found := true()):
        assert time.monotonic() < end, "it never came true"
        time.sleep(0.05)
    return found


def status() -> list[dict[str, object]]:
    return json.loads(mopt("--status", "--json").stdout)["servers"]


def starts(played: Path) -> int:
    log = played.with_suffix(".starts")
    return log.read_text().count("\n") if log.is_file() else 0


def gone(pid: object) -> bool:
    return not psutil.pid_exists(int(str(pid))) or psutil.Process(int(str(pid))).status() == "zombie"


def test_a_file_is_served_by_the_program_and_ctrl_c_stops_it(played: Path, tmp_path: Path) -> None:
    terminal = Terminal(tmp_path / "tiny.gguf", "--max-num-seqs", "2")
    served = terminal.served()
    assert (served["engine"], served["scheme"]) == ("llama_cpp", "fp32")
    assert get(str(served["url"]), "/health")[0] == 200
    words = json.loads(played.with_suffix(".starts").read_text())
    assert words[words.index("--model") + 1] == str(tmp_path / "tiny.gguf")
    assert words[words.index("--parallel") + 1] == "2"
    assert words[words.index("--host") + 1] == "127.0.0.1"
    (row,) = status()
    assert row["supervisor"] == terminal.program.pid
    code, _out, err = terminal.end(signal.SIGINT)
    assert (code, err.splitlines()[-1]) == (0, "stopped")
    assert gone(served["pid"])
    assert status() == []


def test_it_is_started_again_on_its_port_after_it_died(played: Path, tmp_path: Path) -> None:
    terminal = Terminal(tmp_path / "tiny.gguf", "--restart", "on-failure:3")
    first = terminal.served()
    os.kill(int(str(first["pid"])), signal.SIGKILL)
    until(lambda: starts(played) == 2 and (rows := status()) and rows[0]["starts"] == 2)
    (row,) = status()
    assert row["url"] == first["url"]
    assert row["pid"] != first["pid"]
    assert post(str(row["url"]), "/v1/completions", {"prompt": "x", "max_tokens": 8})[0] == 200
    code, _out, err = terminal.end(signal.SIGINT)
    assert code == 0
    assert "start 1 of 3 in 1 s" in err
    assert "killed by SIGKILL" in err
    assert gone(row["pid"])


def test_a_log_stays_small_and_its_first_lines_and_its_last_name_the_cause(
    played: Path, tmp_path: Path
) -> None:
    """Four MiB are printed; the log has one, an older file another."""
    played.write_text("chatty")
    log = tmp_path / "logs" / "serve.log"
    terminal = Terminal(tmp_path / "tiny.gguf", "--log", log, "--log-size", "1MiB", "--log-files", "1")
    served = terminal.served()
    os.kill(int(str(served["pid"])), signal.SIGKILL)
    code, out, _err = terminal.end()
    assert code == 5
    assert json.loads(out)["error"]["reference"] == "worker-crashed"
    assert sorted(path.name for path in log.parent.iterdir()) == ["serve.log", "serve.log.1"]
    assert all(path.stat().st_size <= 1 << 20 for path in log.parent.iterdir())
    text = log.read_text()
    assert text.startswith("llama_model_loader: loaded meta data")
    assert "request 000001 " in text and "request 039999 " in text and "request 010000 " not in text


def test_each_slot_keeps_its_tokens_when_slots_are_named(played: Path, tmp_path: Path) -> None:
    for words, context in (
        (
            ("--max-num-seqs", "3"),
            "ctx-size = 12288 (derived: 4096 tokens a slot, 3 slots: the model has 4096",
        ),
        (("--max-num-seqs", "16"), "ctx-size = 65536 (derived: 4096 tokens a slot, 16 slots"),
        (("--max-num-seqs", "3", "--max-model-len", "900"), "ctx-size = 2700 (user"),
        (("--max-model-len", "900"), "ctx-size = 7200 (user"),
        (("--set", "ctx-size=900"), "ctx-size = 900 (user"),
    ):
        assert context in mopt(tmp_path / "tiny.gguf", *words, "--dry-run").stdout


@pytest.mark.parametrize("slots", ["auto", "-1", "0"])
def test_slots_that_are_no_number_are_wrong_usage(played: Path, tmp_path: Path, slots: str) -> None:
    for more in (("--max-model-len", "900"), (), ("--set", "ctx-size=900")):
        done = mopt(tmp_path / "tiny.gguf", *more, "--set", f"parallel={slots}", "--dry-run")
        assert done.returncode == 2
        assert f"a number from 1 on, not `{slots}`" in done.stderr


def test_a_crash_loop_is_one_error(played: Path, tmp_path: Path) -> None:
    played.write_text("dies-soon no-model")
    terminal = Terminal(tmp_path / "tiny.gguf", "--restart", "on-failure:1")
    terminal.served()
    code, out, err = terminal.end()
    error = json.loads(out)["error"]
    assert code == 5
    assert error["reference"] == "crash-loop"
    assert "failed 2 times in a row" in error["message"]
    assert starts(played) == 2
    assert err.count("start 1 of 1") == 1
    assert status() == []


def test_a_server_of_another_terminal_is_stopped_with_who_watches_it(played: Path, tmp_path: Path) -> None:
    """Its supervisor would otherwise start it again."""
    terminal = Terminal(tmp_path / "tiny.gguf", "--restart", "on-failure")
    served = terminal.served()
    done = mopt("--stop", str(served["pid"]))
    assert done.stdout == f"stopped tiny (pid {served['pid']})\n"
    code, _out, err = terminal.end()
    assert code == 0
    assert err.splitlines()[-1] == "stopped"
    assert gone(served["pid"])
    assert starts(played) == 1


def test_a_detached_server_is_watched_and_restarted(played: Path, tmp_path: Path) -> None:
    done = mopt(tmp_path / "tiny.gguf", "--detach", "--restart", "on-failure:2", "--json")
    assert done.returncode == 0, done.stderr
    first = json.loads(done.stdout)
    os.kill(first["pid"], signal.SIGKILL)
    until(lambda: (rows := status()) and rows[0]["starts"] == 2)
    (row,) = status()
    assert row["supervisor"] == first["supervisor"]
    assert mopt("--stop", str(row["supervisor"])).returncode == 0
    assert gone(row["pid"])
    assert gone(first["supervisor"])


def test_a_detached_start_that_fails_says_why(played: Path, tmp_path: Path) -> None:
    played.write_text("no-model")
    done = mopt(tmp_path / "tiny.gguf", "--detach", "--restart", "on-failure:2")
    assert done.returncode == 5
    assert "error[" in done.stderr
    assert "config.json" in done.stderr
    assert status() == []


def test_ctrl_c_twice_leaves_nothing(played: Path, tmp_path: Path) -> None:
    """The server hears neither SIGINT nor SIGTERM; the second Ctrl-C does not wait for the grace to pass."""
    played.write_text("deaf")
    terminal = Terminal(tmp_path / "tiny.gguf")
    served = terminal.served()
    terminal.program.send_signal(signal.SIGINT)
    time.sleep(0.5)
    begun = time.monotonic()
    code, _out, err = terminal.end(signal.SIGINT)
    assert time.monotonic() - begun < 10
    assert code in (0, 130)
    assert "stopped" in err
    assert "Traceback" not in err
    assert gone(served["pid"])


def test_a_program_that_is_killed_takes_its_server_along(played: Path, tmp_path: Path) -> None:
    terminal = Terminal(tmp_path / "tiny.gguf")
    served = terminal.served()
    terminal.end(signal.SIGKILL)
    until(lambda: gone(served["pid"]))
    assert status() == []


def test_nonsense_is_not_served(played: Path, tmp_path: Path) -> None:
    played.write_text("bangs")
    done = mopt(tmp_path / "tiny.gguf")
    assert done.returncode == 5
    assert "its first answer is nonsense" in done.stderr
    assert "exclamation marks" in done.stderr


def test_a_start_that_hangs_has_a_limit(played: Path, tmp_path: Path) -> None:
    played.write_text("hangs")
    done = mopt(tmp_path / "tiny.gguf", "--start-limit", "1s")
    assert done.returncode == 5
    assert "not ready after 1 s" in done.stderr
    assert "give it longer with --start-limit" in done.stderr


def test_a_port_that_is_taken_by_name_is_said_and_by_chance_is_another(played: Path, tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        done = mopt(tmp_path / "tiny.gguf", "--port", str(taken.getsockname()[1]))
    assert done.returncode == 3
    assert "is in use" in done.stderr
    played.write_text("port-taken good")
    terminal = Terminal(tmp_path / "tiny.gguf")
    assert terminal.served()["served_name"] == "tiny"
    assert starts(played) == 2
    terminal.end(signal.SIGINT)


def test_the_next_plan_is_a_command_that_can_be_run(played: Path, tmp_path: Path) -> None:
    played.write_text("oom good")
    done = mopt(tmp_path / "tiny.gguf", "--max-num-seqs", "4")
    assert done.returncode == 5
    hint = next(line for line in done.stderr.splitlines() if "next plan: " in line)
    command = hint.partition("next plan: ")[2]
    assert command.startswith("mopt serve ")
    assert command.endswith("--max-num-seqs 4 --set parallel=2")
    assert "or have it taken by itself: --adapt" in done.stderr
    played.with_suffix(".starts").unlink()
    adapted = mopt(tmp_path / "tiny.gguf", "--max-num-seqs", "4", "--adapt", "--detach")
    assert adapted.returncode == 0
    assert "changed to fit: parallel=2 (half of 4)" in adapted.stdout


def test_the_cache_is_compared_with_what_was_asked_for(played: Path, tmp_path: Path) -> None:
    done = mopt(tmp_path / "tiny.gguf", "--set", "ctx-size=16000", "--detach")
    assert "KV cache: 16,384 tokens (predicted 16,000, 2.3 % too few)" in done.stdout
    (row,) = status()
    assert (row["kv_cache_tokens"], row["kv_cache_tokens_predicted"]) == (16384, 16000)


def test_without_the_program_it_says_what_to_do(played: Path, tmp_path: Path) -> None:
    (tmp_path / "bin" / "llama-server").unlink()
    done = mopt(tmp_path / "tiny.gguf")
    assert done.returncode == 3
    assert "there is no program `llama-server`" in done.stderr
    assert mopt(tmp_path / "tiny.gguf", "--program", "/nowhere/llama").returncode == 3


def test_a_key_reaches_the_program_and_no_list_of_processes(
    played: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MOPT_API_KEY", "a-secret-key")
    terminal = Terminal(tmp_path / "tiny.gguf")
    served = terminal.served()
    process = psutil.Process(int(str(served["pid"])))
    assert "a-secret-key" not in " ".join(process.cmdline())
    assert process.environ()["LLAMA_API_KEY"] == "a-secret-key"
    terminal.end(signal.SIGINT)


def test_wrong_words_are_refused_before_anything_starts(played: Path, tmp_path: Path) -> None:
    for words, says in (
        (("--restart", "always"), "`--restart always` is not known"),
        (("--set", "ctx_sise=1"), "did you mean `ctx-size`?"),
        (("--env", "lower=1"), "is not NAME=VALUE"),
        (("--log", "/dev/full"), "`/dev/full` is no file that a log can be kept in"),
        (("--log-size", "10KiB"), "--log-size must be at least 1 MiB, not 10 KiB"),
        (("--log-files", "1" + "0" * 20), "--log-files"),
        (("--log", "x" * 300), "is longer than a name may be"),
    ):
        done = mopt(tmp_path / "tiny.gguf", *words)
        assert done.returncode == 2
        assert says in done.stderr
    done = mopt("--container", tmp_path / "tiny.gguf")
    assert done.returncode == 2
    assert f"mopt serve --container= {tmp_path / 'tiny.gguf'}" in done.stderr
    assert starts(played) == 0


def test_a_container_is_found_and_stopped_by_its_id(played: Path, docker: Path, tmp_path: Path) -> None:
    done = mopt(tmp_path / "tiny.gguf", "--container", "my/llama:1", "--detach")
    assert done.returncode == 0, done.stderr
    assert "pulling my/llama:1" in done.stderr
    (row,) = status()
    (place,) = (docker / "containers").iterdir()
    assert row["container"] == place.name
    assert (row["healthy"], row["runtime"]) == (True, "docker")
    assert mopt("--stop", "tiny").returncode == 0
    assert not list((docker / "containers").iterdir())
    assert status() == []
    assert starts(played) == 0


def test_a_container_that_dies_is_started_again(played: Path, docker: Path, tmp_path: Path) -> None:
    terminal = Terminal(tmp_path / "tiny.gguf", "--container", "--restart", "on-failure:2")
    first = terminal.served()
    place = docker / "containers" / str(first["container"])
    os.kill(int((place / "pid").read_text()), signal.SIGKILL)
    until(lambda: (rows := status()) and rows[0]["starts"] == 2)
    (row,) = status()
    assert row["url"] == first["url"]
    assert row["container"] != first["container"]
    assert terminal.end(signal.SIGINT)[0] == 0
    assert not list((docker / "containers").iterdir())
    assert {p.name for p in (docker / "removed").iterdir()} == {row["container"], first["container"]}


def test_dry_run_shows_the_containers_command(played: Path, docker: Path, tmp_path: Path) -> None:
    done = mopt(tmp_path / "tiny.gguf", "--container", "--dry-run")
    assert "command: docker run --name mopt-tiny-" in done.stdout
    assert "-p 127.0.0.1:8000:8000" in done.stdout
    assert not list((docker / "containers").iterdir())
    assert '"run"' not in (docker / "calls").read_text()


def test_a_container_that_lost_its_program_while_it_started_is_found(
    played: Path, docker: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_BEHAVIOUR", "never-ready")
    terminal = Terminal(tmp_path / "tiny.gguf", "--container")
    until(lambda: status() and list((docker / "containers").iterdir()))
    terminal.end(signal.SIGKILL)
    (row,) = status()
    (place,) = (docker / "containers").iterdir()
    assert (row["container"], row["url"], row["healthy"]) == (place.name, "", False)
    assert "starting" in mopt("--status").stdout
    assert mopt("--stop").returncode == 0
    assert not list((docker / "containers").iterdir())
    assert status() == []


def test_a_container_that_does_not_start_is_forgotten(
    played: Path, docker: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_BEHAVIOUR", "dies")
    assert mopt(tmp_path / "tiny.gguf", "--container").returncode == 5
    assert not list((tmp_path / "mopt" / "servers").glob("*.json"))
    assert not list((docker / "containers").iterdir())

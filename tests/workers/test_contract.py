"""The contract between a worker and the one who runs it, tried with real processes."""

import errno
import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import model_optimizer.workers as workers

WORKERS = Path(workers.__file__).parent

HEAD = f"""
import sys
sys.path.append({str(WORKERS)!r})
from _contract import fail, main, progress
"""


def run(tmp_path: Path, body: str, request: object = None) -> tuple[int, dict | None, list[str]]:
    """Exit code, result and the lines of the log of a worker with this body."""
    script = tmp_path / "stand_in.py"
    script.write_text(HEAD + body)
    (tmp_path / "request.json").write_text(json.dumps(request or {}))
    done = subprocess.run(
        [sys.executable, "-P", script, tmp_path / "request.json", tmp_path / "result.json"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout == ""
    result = tmp_path / "result.json"
    answer = json.loads(result.read_text()) if result.exists() else None
    assert sorted(p.name for p in tmp_path.iterdir() if "tmp" in p.name) == []
    return done.returncode, answer, done.stderr.splitlines()


def test_a_result_comes_with_the_peak_memory(tmp_path: Path) -> None:
    code, answer, log = run(
        tmp_path,
        "def job(request):\n"
        "    progress('half', 0.5)\n"
        "    progress('somewhere')\n"
        "    print('a library talks')\n"
        "    return {'twice': request['n'] * 2}\n"
        "main(job)\n",
        {"n": 21},
    )
    assert code == 0
    assert answer is not None
    assert answer["twice"] == 42
    assert answer["peak_memory_bytes"] > 1 << 20
    assert [json.loads(line) for line in log if line.startswith("{")] == [
        {"progress": "half", "share": 0.5},
        {"progress": "somewhere"},
    ]
    assert "a library talks" in log


def test_an_expected_failure_has_no_traceback(tmp_path: Path) -> None:
    code, answer, log = run(
        tmp_path, "main(lambda request: fail('no-model', 'there is no model', ['why'], ['do this']))"
    )
    assert code == 1
    assert answer == {
        "error": {
            "reference": "no-model",
            "message": "there is no model",
            "cause": ["why"],
            "hint": ["do this"],
        }
    }
    assert log == []


@pytest.mark.parametrize(
    ("raised", "reference"),
    [
        ("ValueError('first\\nsecond')", "tool-failed"),
        ("MemoryError()", "out-of-memory"),
        (f"OSError({errno.ENOSPC}, 'No space left on device')", "disk-full"),
        (f"OSError({errno.EFBIG}, 'File too large')", "disk-full"),
        ("RuntimeError('write failed: No space left on device')", "disk-full"),
    ],
)
def test_an_unforeseen_failure_is_answered_and_logged(tmp_path: Path, raised: str, reference: str) -> None:
    code, answer, log = run(tmp_path, f"def job(request):\n    raise {raised}\nmain(job)\n")
    assert code == 1
    assert answer is not None
    assert answer["error"]["reference"] == reference
    assert "second" not in json.dumps(answer)
    assert log[0].startswith("Traceback")


def test_a_very_long_traceback_is_cut(tmp_path: Path) -> None:
    body = (
        "def dive(n, m):\n    return dive(n - 1, m) if n else 1 / 0\n"
        "def back(n):\n    return dive(0, 0) if n == 0 else forth(n - 1)\n"
        "def forth(n):\n    return back(n)\n"
        "main(lambda request: back(150))\n"
    )
    _, answer, log = run(tmp_path, body)
    assert answer is not None
    assert len(log) < 100
    assert "left out" in "\n".join(log)


def test_a_polite_stop_unwinds_the_job(tmp_path: Path) -> None:
    script = tmp_path / "stand_in.py"
    script.write_text(
        HEAD + "import time, pathlib\n"
        "def job(request):\n"
        "    try:\n"
        "        progress('started')\n"
        "        time.sleep(60)\n"
        "    finally:\n"
        "        pathlib.Path(request['mark']).write_text('cleaned')\n"
        "main(job)\n"
    )
    (tmp_path / "request.json").write_text(json.dumps({"mark": str(tmp_path / "mark")}))
    with subprocess.Popen(
        [sys.executable, "-P", script, tmp_path / "request.json", tmp_path / "result.json"],
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr is not None
        assert "started" in process.stderr.readline()
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=30) == 143
    assert (tmp_path / "mark").read_text() == "cleaned"
    assert not (tmp_path / "result.json").exists()


def test_a_worker_ends_with_the_program_that_started_it(tmp_path: Path) -> None:
    """Also when that program is killed and can no longer say so."""
    script = tmp_path / "long.py"
    body = (
        "import os, time\ndef job(request):\n    progress(str(os.getpid()))\n    time.sleep(60)\nmain(job)\n"
    )
    script.write_text(HEAD + body)
    (tmp_path / "request.json").write_text("{}")
    words = [sys.executable, "-P", str(script), str(tmp_path / "request.json"), str(tmp_path / "result.json")]
    start = (
        f"import subprocess, sys, time; subprocess.Popen({words!r}, start_new_session=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", start], stderr=subprocess.PIPE, text=True) as program:
        assert program.stderr is not None
        worker = int(json.loads(program.stderr.readline())["progress"])
        program.kill()
        program.stderr.read()  # ends when the worker, which holds the other end too, has ended
    assert not Path(f"/proc/{worker}/cmdline").exists() or not Path(f"/proc/{worker}/cmdline").read_bytes()
    assert not (tmp_path / "result.json").exists()


def test_a_detached_server_goes_on_without_the_program_that_started_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Every job is watched from its begin; a server says later whether it is somebody's."""
    import _serve_parent as parent

    ended: list[int] = []
    monkeypatch.setattr(parent, "_end", ended.append)
    monkeypatch.setattr(parent, "_detached", threading.Event())
    monkeypatch.setattr(parent, "GRACE_S", 0.0)
    gone = os.getppid() + 1
    parent._watch(gone)
    assert ended == [signal.SIGTERM, signal.SIGKILL]
    monkeypatch.delenv(parent.VARIABLE, raising=False)
    parent.end_with_parent()
    parent._watch(gone)
    assert len(ended) == 2

"""A program that says nothing: what its last lines, its state and its stack tell."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from model_optimizer.core.diagnosis import Diagnosis, Evidence
from model_optimizer.diagnose import of_file, of_text, signature
from model_optimizer.diagnose.match import Matcher
from model_optimizer.diagnose.silence import judge_silence
from model_optimizer.system.process_look import Look, age_s, look

SILENT = [s for s in signature.load() if s.head.silent]
BUSY = Look(pid=1, alive=True, state="running", running_s=900.0, cpu_percent=99.0)
IDLE = Look(pid=1, alive=True, state="sleeping", running_s=900.0, cpu_percent=0.1)


def judged(lines: list[str], at: Look | None, *, silent_s: float | None = 700.0) -> Diagnosis:
    last = [Evidence(line=n, text=text) for n, text in enumerate(lines, 1)]
    return judge_silence(
        of_text(lines), last, signature.load(), limit_s=600.0, silent_s=silent_s, look=at, host=None
    )


@pytest.mark.parametrize("one", SILENT, ids=lambda s: s.id)
def test_each_is_found_by_its_last_line_and_its_state_and_not_without_silence(
    one: signature.Signature,
) -> None:
    lines = ["INFO start", *one.body.example.splitlines()]
    state = IDLE if one.head.process == "idle" else BUSY
    found = judged(lines, state)
    assert found.primary is not None and found.primary.id == one.id
    assert found.primary.evidence[0].line == len(lines)
    assert of_text(lines).primary is None
    assert judged(lines, state, silent_s=10.0).primary is None


def test_the_state_decides_between_working_and_waiting() -> None:
    lines = ["INFO [ray_utils.py:402] Waiting for creating a placement group of specs for 40 seconds."]
    assert judged(lines, IDLE).primary is not None
    assert judged(lines, BUSY).primary is None


def test_a_frame_is_better_than_a_line() -> None:
    at = Look(
        pid=1, alive=True, state="running", cpu_percent=99.0, stack=("acquire_read (shm_broadcast.py:571)",)
    )
    found = judged(["INFO something else"], at)
    assert found.primary is not None
    assert (found.primary.id, found.primary.confidence) == ("hang-shm-wait", "high")


def test_a_cause_that_the_log_shows_stays_the_cause() -> None:
    found = judged(["OSError: [Errno 98] Address already in use", "INFO vLLM is using nccl==2.27.5"], BUSY)
    assert found.primary is not None and found.primary.id == "vllm-port"


@pytest.mark.parametrize(
    ("at", "silent_s", "words"),
    [
        (BUSY, 10.0, "not silent yet"),
        (BUSY, 700.0, "silent but works"),
        (IDLE, 700.0, "silent and waits"),
        (Look(pid=1, alive=False), 700.0, "has ended"),
        (Look(pid=1, alive=True, state="stopped", cpu_percent=0.0), 700.0, "stopped"),
        (Look(pid=1, alive=True, state="disk-sleep", cpu_percent=0.0), 700.0, "disk or for a driver"),
        (None, 700.0, "--pid"),
    ],
)
def test_the_verdict(at: Look | None, silent_s: float, words: str) -> None:
    silence = judged(["INFO x"], at, silent_s=silent_s).silence
    assert silence is not None and words in silence.verdict


def test_a_real_process_is_looked_at_and_left_alone(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("INFO vLLM is using nccl==2.27.5\n")
    os.utime(log, (time.time() - 3600, time.time() - 3600))
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        found = of_file(log, pid=child.pid)
        assert child.poll() is None
    finally:
        child.kill()
        child.wait()
    silence = found.silence
    assert silence is not None and silence.alive and silence.silent_s is not None
    assert silence.silent_s > 3000 and silence.running_s is not None and silence.cpu_percent is not None
    assert look(child.pid).alive is False
    assert age_s(tmp_path / "none") is None and age_s(tmp_path) is None


def test_the_last_lines_keep_their_numbers() -> None:
    seen = Matcher(signature.load())
    seen.feed(b"a\nb\n\n")
    seen.feed(b"c\n\n")
    assert [(e.line, e.text) for e in seen.last_lines] == [(1, "a"), (2, "b"), (4, "c")]

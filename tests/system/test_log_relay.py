"""Logs of programs that print for ever."""

import itertools
import os
import re
import sys
import time
from pathlib import Path

import pytest

from model_optimizer.flow import serve as flow
from model_optimizer.system import log_relay, processes
from model_optimizer.system.processes import Rotation
from model_optimizer.system.processes import running as module

SMALL = Rotation(limit_bytes=1 << 14, older=2)
CHATTY = """
import os, sys
print("engine 1.2.3 starts", flush=True)
for number in range(int(sys.argv[1])):
    print(f"line {number:06d} " + "x" * (number % 70), flush=number % 50 == 0)
print("RuntimeError: the last word")
"""


def chatty(log: Path, lines: int, rotation: Rotation | None = SMALL) -> processes.Running:
    running = processes.start([sys.executable, "-c", CHATTY, str(lines)], log=log, rotation=rotation)
    assert running.wait(60) == 0
    return running


def numbers(text: str) -> list[int]:
    return [int(n) for n in re.findall(r"^line (\d+) x*$", text, re.MULTILINE)]


def test_a_log_stays_small_and_has_its_first_and_its_last_lines(tmp_path: Path) -> None:
    log = tmp_path / "serve.log"
    running = chatty(log, 3000)
    found = sorted(p.name for p in tmp_path.iterdir())
    assert found == ["serve.log", "serve.log.1", "serve.log.2"]
    assert all(path.stat().st_size <= SMALL.limit_bytes for path in tmp_path.iterdir())
    text = log.read_text()
    assert text.startswith("engine 1.2.3 starts\nline 000000 \nline 000001 x\n")
    assert text.endswith("RuntimeError: the last word\n")
    assert running.log_tail(1) == ("RuntimeError: the last word",)
    (left_out,) = re.findall(
        r"^\[mopt\] (\d+) bytes are left out here; .* in serve\.log\.1$", text, re.MULTILINE
    )
    assert int(left_out) > 3 * SMALL.limit_bytes
    assert log.with_name("serve.log.1").read_text().startswith(text[: text.index("[mopt]")])


def test_no_line_is_lost_between_two_files(tmp_path: Path) -> None:
    log = tmp_path / "serve.log"
    chatty(log, 700, Rotation(limit_bytes=1 << 14, older=9))
    files = [*sorted(tmp_path.glob("serve.log.?"), reverse=True), log]
    assert len(files) > 2
    parts = [path.read_text().rpartition("[mopt]")[2] for path in files]
    assert list(itertools.chain(*map(numbers, parts))) == list(range(700))


def test_the_place_of_a_start_holds_in_every_later_file(tmp_path: Path) -> None:
    log = tmp_path / "serve.log"
    log.write_text("earlier words\n" * 20)
    running = chatty(log, 3000)
    assert running.log_from == 14 * 20
    assert log.read_bytes()[running.log_from :].startswith(b"engine 1.2.3 starts\n")
    said = flow._said(log, running.log_from)  # pyright: ignore[reportPrivateUsage]
    assert said.startswith("engine 1.2.3 starts\n") and said.endswith("the last word\n")


def test_a_long_log_of_earlier_starts_makes_room(tmp_path: Path) -> None:
    log = tmp_path / "serve.log"
    log.write_text("earlier words\n" * 1000)
    running = chatty(log, 5)
    assert running.log_from == 0
    assert log.read_text().startswith("engine 1.2.3 starts\n")
    assert log.with_name("serve.log.1").read_text() == "earlier words\n" * 1000


def test_a_long_log_is_looked_at_from_both_ends(tmp_path: Path) -> None:
    log = tmp_path / "serve.log"
    log.write_bytes(b"first\n" + b"x" * (flow.HEAD_BYTES + flow.TAIL_BYTES + 100) + b"\nlast\n")
    said = flow._said(log, 0)  # pyright: ignore[reportPrivateUsage]
    assert (said[:6], said[-5:], len(said)) == ("first\n", "last\n", flow.HEAD_BYTES + flow.TAIL_BYTES)


def test_words_without_an_end_of_line_fill_files_too(tmp_path: Path) -> None:
    log = tmp_path / "serve.log"
    script = "import sys; sys.stdout.write('begin\\n' + 'x' * 100_000 + 'end')"
    running = processes.start([sys.executable, "-c", script], log=log, rotation=SMALL)
    assert running.wait(60) == 0
    assert all(path.stat().st_size <= SMALL.limit_bytes for path in tmp_path.iterdir())
    assert log.read_text().startswith("begin\n") and log.read_text().endswith("xend")


def test_a_new_file_keeps_the_mode_and_touches_nothing_else(tmp_path: Path) -> None:
    """The log may be a link, and a file or link of a name like LOG.new belongs to somebody else."""
    other, log = tmp_path / "other", tmp_path / "place" / "serve.log"
    other.write_text("mine")
    log.parent.mkdir()
    log.touch(mode=0o600)
    log.with_name("serve.log.new").symlink_to(other)
    link = tmp_path / "link.log"
    link.symlink_to(log)
    chatty(link, 1000, Rotation(limit_bytes=1 << 14, older=1))
    assert link.is_symlink() and other.read_text() == "mine"
    assert log.stat().st_mode & 0o777 == 0o600
    assert sorted(p.name for p in log.parent.iterdir()) == ["serve.log", "serve.log.1", "serve.log.new"]


def test_the_program_goes_on_where_no_file_can_be_begun(tmp_path: Path) -> None:
    """The name of the older file is taken by a folder with something in it: the log grows on."""
    log = tmp_path / "serve.log"
    (tmp_path / "serve.log.1" / "in the way").mkdir(parents=True)
    chatty(log, 1000, Rotation(limit_bytes=1 << 14, older=1))
    assert numbers(log.read_text()) == list(range(1000))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["serve.log", "serve.log.1"]


def test_a_full_disk_holds_up_nobody_and_is_said_afterwards(tmp_path: Path) -> None:
    with Path("/dev/full").open("wb", buffering=0) as full:
        bounded = log_relay.Bounded(os.dup(full.fileno()), tmp_path / "none", 1 << 20, 1, 1)
        bounded.write(b"lost\n")
    log = tmp_path / "log"
    bounded._stream = os.open(log, os.O_WRONLY | os.O_CREAT)  # pyright: ignore[reportPrivateUsage]
    bounded.write(b"there\n")
    assert log.read_text() == "[mopt] about 5 bytes could not be written here\nthere\n"


def test_who_keeps_the_log_ends_with_the_last_who_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A child that outlives its parent still has a log; nobody waits for it."""
    monkeypatch.setattr(module, "DRAINED_S", 0.05)
    log, go = tmp_path / "log", tmp_path / "go"
    child = (
        f"import os, time\nwhile not os.path.exists({str(go)!r}): time.sleep(0.02)\nprint('the child ends')"
    )
    script = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {child!r}]); print('ends')"
    running = processes.start([sys.executable, "-c", script], log=log, rotation=SMALL)
    assert running.wait(30) == 0
    assert running.log_tail(1) == ("ends",)
    go.touch()
    until = time.monotonic() + 60
    while "the child ends" not in log.read_text():
        assert time.monotonic() < until
        time.sleep(0.02)
    monkeypatch.setattr(module, "DRAINED_S", 30.0)
    running.stop(grace_s=1)


@pytest.mark.parametrize("older", [1, 3])
def test_as_many_older_files_are_kept_as_were_asked_for(tmp_path: Path, older: int) -> None:
    chatty(tmp_path / "serve.log", 3000, Rotation(limit_bytes=1 << 14, older=older))
    assert len(list(tmp_path.iterdir())) == older + 1

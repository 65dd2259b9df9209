"""Programs are followed to their end, and stopped with all that they started."""

import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from model_optimizer.core import HostError, ToolError, UsageError
from model_optimizer.system import processes, unfinished

WITH_CHILD = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])
print(child.pid, flush=True)
time.sleep(600)
"""
STUBBORN = """
import signal, time
signal.signal(signal.SIGINT, signal.SIG_IGN); signal.signal(signal.SIGTERM, signal.SIG_IGN)
print('ready', flush=True)
time.sleep(600)
"""


def python(script: str) -> list[str]:
    return [sys.executable, "-c", script]


def until(true: Callable[[], object], timeout_s: float = 30) -> None:
    end = time.monotonic() + timeout_s
    while not true():
        assert time.monotonic() < end
        time.sleep(0.02)


def gone(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def test_run_keeps_what_was_printed_and_the_code() -> None:
    ended = processes.run(
        python("import sys; print(input()); print('bad', file=sys.stderr); sys.exit(3)"), text="good\n"
    )
    assert (ended.code, ended.stdout, ended.stderr) == (3, "good\n", "bad\n")


def test_run_stops_what_takes_too_long() -> None:
    with pytest.raises(ToolError, match=r"did not end within 0\.3 s") as caught:
        processes.run(python("import time; time.sleep(600)"), timeout_s=0.3)
    assert caught.value.reference == "timed-out"


def test_a_missing_program_and_a_missing_folder_are_told_apart(tmp_path: Path) -> None:
    with pytest.raises(HostError, match="no program `mopt-no-such-program`"):
        processes.run(["mopt-no-such-program"])
    with pytest.raises(UsageError, match="no folder"):
        processes.run(python("pass"), cwd=tmp_path / "nowhere")
    (tmp_path / "text").write_text("not a program")
    with pytest.raises(HostError, match="cannot be started"):
        processes.run([tmp_path / "text"])


def test_stop_reaches_children_too(tmp_path: Path) -> None:
    log = tmp_path / "new" / "log"
    running = processes.start(python(WITH_CHILD), log=log)
    until(lambda: running.log_tail(1))
    child = int(running.log_tail(1)[0])
    assert {running.pid, child} <= {p.pid for p in running.family()}
    memory = running.memory_bytes()
    assert memory
    assert memory > 1_000_000
    assert running.memory_kind in {"pss", "rss"}
    assert running.poll() is None
    assert running.stop(grace_s=10) == -signal.SIGINT or running.poll() == 1
    assert gone(child)
    assert running.memory_bytes() is None


def test_stop_ends_what_ignores_it(tmp_path: Path) -> None:
    running = processes.start(python(STUBBORN), log=tmp_path / "log")
    until(lambda: running.log_tail(1) == ("ready",))
    assert running.stop(grace_s=0.4) == -signal.SIGKILL


def test_stop_of_an_ended_leader_still_reaches_its_group(tmp_path: Path) -> None:
    script = WITH_CHILD.replace("time.sleep(600)\n", "")
    running = processes.start(python(script), log=tmp_path / "log")
    assert running.wait(30) == 0
    child = int(running.log_tail(1)[0])
    assert not gone(child)
    running.stop(grace_s=2)
    until(lambda: gone(child))


LEAVES_A_SOCKET = """
import os, socket, sys, tempfile, time
place = tempfile.mkdtemp()
socket.socket(socket.AF_UNIX).bind(os.path.join(tempfile.gettempdir(), 'a' * 36))
print(tempfile.gettempdir(), flush=True)
if sys.argv[1:] == ['waits']:
    time.sleep(600)
"""


@pytest.fixture
def short_tmp(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A temporary folder of the machine, under a name as short as that of most."""
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="t-") as place:
        monkeypatch.setattr(tempfile, "tempdir", place)
        yield Path(place)


def leaving(tmp_path: Path, *words: str) -> tuple[processes.Running, Path]:
    log = tmp_path / "log"
    running = processes.start([*python(LEAVES_A_SOCKET), *words], log=log, own_temporary=True)
    until(lambda: running.log_tail(1))
    place = Path(running.log_tail(1)[0])
    return running, place


def test_what_a_server_leaves_in_its_temporary_folder_goes(tmp_path: Path, short_tmp: Path) -> None:
    running, place = leaving(tmp_path, "waits")
    assert place.parent == short_tmp
    assert place.stat().st_mode & 0o777 == 0o700
    running.stop(grace_s=2.0)
    assert list(short_tmp.iterdir()) == []
    ended, _place = leaving(tmp_path)
    assert ended.wait(30) == 0
    assert list(short_tmp.iterdir()) == []


def test_it_goes_too_when_another_process_stops_the_server(tmp_path: Path, short_tmp: Path) -> None:
    running, place = leaving(tmp_path, "waits")
    found = processes.attach(running.pid, running.started_at)
    assert found is not None
    assert found.temporary == place
    found.stop(grace_s=2.0)
    assert list(short_tmp.iterdir()) == []
    running.wait(30)


def test_it_is_nobodys_as_long_as_the_server_lives(tmp_path: Path, short_tmp: Path) -> None:
    running, place = leaving(tmp_path, "waits")
    unfinished.sweep_temporary(short_tmp)
    assert place.is_dir(), "who started it has closed its lock, the server has it"
    os.killpg(running.pid, signal.SIGKILL)
    until(lambda: gone(running.pid))
    unfinished.sweep_temporary(short_tmp)
    assert not place.exists()
    running.wait(30)


def test_a_socket_would_have_too_long_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Then it has the temporary folder that it would have had."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / ("n" * 60)))
    Path(tempfile.tempdir or "").mkdir()
    monkeypatch.delenv("TMPDIR", raising=False)
    running, place = leaving(tmp_path)
    running.stop()
    assert running.temporary is None
    assert not unfinished.is_temporary(place)


def test_a_program_that_cannot_be_started_leaves_no_folder(short_tmp: Path, tmp_path: Path) -> None:
    with pytest.raises(HostError):
        processes.start(["mopt-no-such-program"], log=tmp_path / "log", own_temporary=True)
    assert list(short_tmp.iterdir()) == []


def test_attach_finds_the_same_program_and_never_another(tmp_path: Path) -> None:
    running = processes.start(python(STUBBORN), log=tmp_path / "log")
    until(lambda: running.log_tail(1) == ("ready",))
    found = processes.attach(running.pid, running.started_at)
    assert found is not None
    assert found.poll() is None
    assert processes.attach(running.pid, running.started_at - 60) is None
    found.stop(grace_s=0.2)
    assert running.poll() == -signal.SIGKILL
    assert found.poll() == 0
    assert processes.attach(running.pid, running.started_at) is None


def test_follow_hands_over_lines_and_logs_the_rest(tmp_path: Path) -> None:
    log, seen = tmp_path / "log", list[str]()

    def take(line: str) -> bool:
        seen.append(line)
        return line.startswith("take")

    script = "import sys; print('out'); sys.stderr.write('take 1\\nkeep\\nno end \\xff'); sys.exit(4)"
    assert processes.follow(python(script), take, log=log) == 4
    assert seen[:2] == ["take 1", "keep"]
    assert sorted(log.read_text().splitlines()) == ["keep", "no end ÿ", "out"]


def test_follow_ends_though_a_child_keeps_the_pipe(tmp_path: Path) -> None:
    script = WITH_CHILD.replace("time.sleep(600)\n", "")
    assert processes.follow(python(script), lambda _: True, log=tmp_path / "log", timeout_s=60) == 0
    child = int((tmp_path / "log").read_text())
    until(lambda: gone(child))


def test_follow_stops_the_program_when_the_caller_fails(tmp_path: Path) -> None:
    def interrupt(_: str) -> bool:
        raise KeyboardInterrupt

    script = (
        "import os, sys, time; print(os.getpid(), flush=True)\n"
        "print('x', file=sys.stderr, flush=True); time.sleep(600)"
    )
    with pytest.raises(KeyboardInterrupt):
        processes.follow(python(script), interrupt, log=tmp_path / "log")
    until(lambda: gone(int((tmp_path / "log").read_text())))


def test_follow_has_a_time_limit_also_for_a_chatterer(tmp_path: Path) -> None:
    for script in (
        "import time; time.sleep(600)",
        "import sys\nwhile True: print('x', file=sys.stderr, flush=True)",
    ):
        with pytest.raises(ToolError, match="did not end"):
            processes.follow(python(script), lambda _: True, log=tmp_path / "log", timeout_s=0.5)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_log_on_a_full_disk_is_an_error_of_the_host() -> None:
    script = "import sys; print('x', file=sys.stderr, flush=True); import time; time.sleep(600)"
    with pytest.raises(HostError, match="is full") as caught:
        processes.follow(python(script), lambda _: False, log=Path("/dev/full"))
    assert caught.value.reference == "disk-full"


def test_a_polite_end_unwinds_like_an_interrupt() -> None:
    def end() -> None:
        with processes.interruptible():
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(30)

    before = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        with pytest.raises(KeyboardInterrupt):
            end()
        assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    finally:
        signal.signal(signal.SIGTERM, before)


def test_tail_of_a_long_log_is_read_from_its_end(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("".join(f"line {i}\n" for i in range(100_000)))
    assert processes.tail(log, 2) == ("line 99998", "line 99999")
    assert processes.tail(tmp_path / "none") == ()


def test_a_free_port_can_be_bound() -> None:
    import socket

    with socket.socket() as server:
        server.bind(("127.0.0.1", processes.free_port()))


def test_an_end_in_words() -> None:
    assert processes.how_it_ended(1) == "exit code 1"
    assert processes.how_it_ended(-9) == "killed by SIGKILL"


DEAF = """
import signal, sys, time
for n in (signal.SIGINT, signal.SIGTERM): signal.signal(n, signal.SIG_IGN)
print("deaf", flush=True)
time.sleep(60)
"""


def test_a_second_ctrl_c_hastens_the_end_and_leaves_nothing(tmp_path: Path) -> None:
    """Ctrl-C while a program is being stopped kills it at once; only then it is raised."""
    running = processes.start([sys.executable, "-c", DEAF], log=tmp_path / "log")
    while not running.log_tail():
        time.sleep(0.01)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    timer = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            running.stop(grace_s=120.0)
    finally:
        timer.join()
        signal.signal(signal.SIGINT, before)
    assert running.poll() == -signal.SIGKILL
    assert signal.getsignal(signal.SIGINT) == before


def test_the_words_of_a_program_are_those_behind_its_begin(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("of another\n")
    running = processes.start([sys.executable, "-c", "print('mine')"], log=log)
    running.wait(20.0)
    assert running.log_tail() == ("mine",)
    assert processes.tail(log) == ("of another", "mine")


def test_the_tail_of_what_has_no_end_has_one() -> None:
    """`/dev/zero` would fill the memory of this machine."""
    assert sum(map(len, processes.tail(Path("/dev/zero")))) <= 1 << 17

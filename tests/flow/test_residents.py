"""Servers that stand by each other: one of them loaded at a time, one lost without the others, none left behind."""

import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from tests.flow import stand_in
from tests.flow.stand_in import begin, plan, runner

from model_optimizer.core import Lengths, Plan
from model_optimizer.core.study import Shape
from model_optimizer.flow.residents import Residents
from model_optimizer.flow.sharing import Shares
from model_optimizer.flow.tune import Runner
from model_optimizer.serve.handle import ServerHandle
from model_optimizer.tune import Order, Outcome, Shared

FAST, SLOW = plan(tpot="1"), plan(tpot="20")


def alike(plans: Sequence[Plan], levels: Sequence[float]) -> Shares:
    del levels
    return Shares(
        plans=tuple(plans), beside=tuple({"share": str(i)} for i, _ in enumerate(plans)), because="so be it"
    )


def orders(*plans: Plan, thorough: bool = True) -> list[Order]:
    return [
        Order(number=i, plan=made, settings={"arm": str(i)}, thorough=thorough)
        for i, made in enumerate(plans)
    ]


def residents(folder: Path, made: Runner | None = None, **given: object) -> Residents:
    mine = made or runner(folder)
    base = {
        "runner_of": lambda order: mine,
        "share": alike,
        "progress": lambda text, share: None,
        "levels": (2.0,),
    }
    return Residents(**{**base, **given})  # type: ignore[arg-type]


def opened(found: Shared | str) -> Shared:
    assert isinstance(found, Shared), found
    return found


@pytest.fixture
def ours() -> Iterator[None]:
    """Nothing that was started here may run when the test ends."""
    yield
    left = [p for p in psutil.Process().children(recursive=True) if "FakeServer" in " ".join(p.cmdline())]
    assert not left


@pytest.mark.usefixtures("ours")
def test_arms_stay_up_and_are_loaded_one_at_a_time(tmp_path: Path) -> None:
    asked = orders(FAST, SLOW)
    with opened(residents(tmp_path).shared(asked)).open(asked) as measure:
        pids = {p.pid for p in psutil.Process().children(recursive=True)}
        first, second, again = (
            measure(asked[0]),
            measure(asked[1]),
            measure(replace(asked[0], number=7, round=2)),
        )
        assert pids == {p.pid for p in psutil.Process().children(recursive=True)}
    assert first and second and again
    assert first.points[0].tpot_ms.p50 < second.points[0].tpot_ms.p50  # type: ignore[operator]
    assert again.state == "measured" and again.beside == {"share": "0"}
    assert first.start_s is not None and first.seconds is not None


@pytest.mark.usefixtures("ours")
def test_an_arm_that_does_not_start_loses_itself_alone(tmp_path: Path) -> None:
    asked = orders(FAST, plan(boom="1"))
    with opened(residents(tmp_path).shared(asked)).open(asked) as measure:
        good, bad, after = measure(asked[0]), measure(asked[1]), measure(replace(asked[1], number=5))
    assert good is not None and good.state == "measured"
    assert bad is not None and bad.state == "failed" and "cuda-oom" in (bad.because or "")
    assert after is None


@pytest.mark.usefixtures("ours")
def test_an_arm_that_never_gets_ready_loses_itself_alone(tmp_path: Path) -> None:
    asked = orders(FAST, plan(hang="1"))
    made = runner(tmp_path, start_limit_s=4.0)
    with opened(residents(tmp_path, made).shared(asked)).open(asked) as measure:
        good, bad = measure(asked[0]), measure(asked[1])
    assert good is not None and good.state == "measured"
    assert bad is not None and bad.reference == "start-timed-out"


@pytest.mark.usefixtures("ours")
def test_an_arm_that_dies_under_load_loses_itself_alone(tmp_path: Path) -> None:
    asked = orders(FAST, plan(dies_after="60"))
    made: list[Outcome | None] = []
    with opened(residents(tmp_path).shared(asked)).open(asked) as measure:
        for number in range(6):
            made.append(measure(replace(asked[1], number=number)))
        good = measure(asked[0])
    assert good is not None and good.state == "measured"
    told = [found for found in made if found is not None and found.state == "failed"]
    assert len(told) == 1 and made[-1] is None
    assert "ended" in (told[0].because or "")


def test_who_shares_nothing_says_why(tmp_path: Path) -> None:
    found = residents(tmp_path, share=lambda plans, levels: "no room").shared(orders(FAST, SLOW))
    assert found == "no room"


@pytest.mark.usefixtures("ours")
def test_not_more_start_at_once_than_asked(tmp_path: Path) -> None:
    running: list[int] = []
    most: list[int] = []
    lock = threading.Lock()

    class Counted(Runner):
        def started(self, *given: object, **named: object) -> ServerHandle:
            with lock:
                running.append(1)
                most.append(len(running))
            try:
                return super().started(*given, **named)  # type: ignore[arg-type]
            finally:
                with lock:
                    running.pop()

    base = runner(tmp_path)
    fields = {name: getattr(base, name) for name in base.__dataclass_fields__}
    made = Counted(**fields)
    asked = orders(FAST, FAST, FAST)
    with opened(residents(tmp_path, made, together=2).shared(asked)).open(asked) as measure:
        assert measure(asked[2]) is not None
    assert max(most) == 2


@pytest.mark.usefixtures("ours")
def test_trials_start_side_by_side_and_memory_says_how_many(tmp_path: Path) -> None:
    seen: list[int] = []

    def two(plans: Sequence[Plan], levels: Sequence[float]) -> Shares | str:
        if len(plans) > 2:
            return "room for two"
        seen.append(len(plans))
        return alike(plans, levels)

    asked = orders(FAST, FAST, SLOW, thorough=False)
    found = list(residents(tmp_path, share=two).execute(lambda made: None, asked))
    assert [order.number for order, _ in found] == [0, 1, 2]
    assert all(outcome.state == "measured" for _, outcome in found)
    assert found[0][1].beside and not found[2][1].beside
    assert found[0][1].seconds > found[0][1].start_s  # type: ignore[operator]


@pytest.mark.usefixtures("ours")
def test_what_is_worth_its_memory_starts_alone(tmp_path: Path) -> None:
    asked = orders(FAST, FAST, SLOW, thorough=False)
    found = list(residents(tmp_path).execute(lambda made: "memory" if made is SLOW else None, asked))
    beside = {order.number: bool(outcome.beside) for order, outcome in found}
    assert beside == {0: True, 1: True, 2: False}


@pytest.mark.usefixtures("ours")
def test_each_shape_of_load_is_measured_with_new_words(tmp_path: Path) -> None:
    short = Shape(name="short", prompt_tokens=Lengths.fixed(4), output_tokens=Lengths.fixed(4))
    long = Shape(name="long", prompt_tokens=Lengths.fixed(40), output_tokens=Lengths.fixed(12))
    base = runner(tmp_path)
    made = replace(base, loads=replace(base.loads, shapes=(short, long)))
    found = made(Order(number=1, plan=FAST, settings={}))
    assert found.shapes == ("short", "long")
    assert found.points[0].prompt_tokens_mean < found.points[1].prompt_tokens_mean  # type: ignore[operator]


SCRIPT = """
import sys
from pathlib import Path
from tests.flow.stand_in import plan, runner
from tests.flow.test_residents import orders, residents
folder = Path(sys.argv[1])
asked = orders(plan(stubborn="1"), plan(stubborn="1", **{sys.argv[2]: "1"}))
with residents(folder, runner(folder, records=folder / "servers")).shared(asked).open(asked) as measure:
    print("open", flush=True)
    while True:
        measure(asked[0])
"""


def _script(folder: Path, second: str) -> "subprocess.Popen[str]":
    root = Path(__file__).parents[2]
    return subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(folder), second],
        cwd=root,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )


def _servers(folder: Path, count: int) -> list[psutil.Process]:
    """Those that are written down, once there are so many."""
    until = time.monotonic() + 60
    while time.monotonic() < until:
        found = [int(path.stem) for path in (folder / "servers").glob("*.json")]
        if len(found) == count:
            return [psutil.Process(pid) for pid in found]
        time.sleep(0.05)
    raise AssertionError("the servers did not start")


@pytest.mark.parametrize("second", ["tpot", "hang"])
def test_ctrl_c_twice_leaves_nothing(tmp_path: Path, second: str) -> None:
    """In a load, and while one still starts; the servers take no polite end."""
    import signal

    done = _script(tmp_path, second)
    servers = _servers(tmp_path, 2)
    if second == "tpot":
        assert done.stdout is not None and done.stdout.readline() == "open\n"
    done.send_signal(signal.SIGINT)
    time.sleep(1.0)
    done.send_signal(signal.SIGINT)
    assert done.wait(40) != 0
    done.communicate()
    gone, alive = psutil.wait_procs(servers, timeout=5)
    assert not alive and len(gone) == 2
    assert not list((tmp_path / "servers").glob("*.json"))


def test_what_a_killed_tuner_left_behind_is_ended(tmp_path: Path) -> None:
    from model_optimizer.flow.kept import sweep

    done = _script(tmp_path, "tpot")
    servers = _servers(tmp_path, 2)
    done.kill()
    done.communicate()
    assert any(p.is_running() for p in servers)
    assert sweep(tmp_path / "servers") >= 1
    assert not psutil.wait_procs(servers, timeout=5)[1]
    assert sweep(tmp_path / "servers") == 0


def test_a_later_process_with_the_same_number_is_left_alone(tmp_path: Path) -> None:
    from model_optimizer.core import codec
    from model_optimizer.flow.kept import Begun, sweep

    other = begin(stand_in.Engine().launch(plan(hang="1"), 1), tmp_path / "log")
    try:
        (tmp_path / "servers").mkdir()
        record = codec.dumps(Begun(pid=other.pid, started_at=other.started_at - 1000))
        (tmp_path / "servers" / f"{other.pid}.json").write_text(record)
        assert sweep(tmp_path / "servers") == 0
        assert other.poll() is None
    finally:
        other.stop(grace_s=2.0)

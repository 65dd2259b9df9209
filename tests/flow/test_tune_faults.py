"""What goes wrong around a study: servers that hang, die or talk nonsense, ports, disks, files that are broken."""

import errno
import socket
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from tests.flow.stand_in import PLAN, begin, plan, port_taken, runner

from model_optimizer.core import HostError, Launch, UsageError
from model_optimizer.core.study import Knob, Study
from model_optimizer.flow import study as studies
from model_optimizer.system.processes import Running
from model_optimizer.tune import Functions, Order, Outcome, TuneQuestion, tune
from model_optimizer.tune.store import DATABASE


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    yield
    left = [p for p in psutil.Process().children(recursive=True) if "FakeServer" in " ".join(p.cmdline())]
    assert not left


def test_a_server_that_hangs_in_its_start_is_stopped_and_said(tmp_path: Path) -> None:
    found = runner(tmp_path, start_limit_s=3.0)(Order(number=1, plan=plan(hang="1"), settings={}))
    assert (found.state, found.reference) == ("failed", "start-timed-out")


def test_a_server_that_dies_under_load_is_no_measurement(tmp_path: Path) -> None:
    """It had answered some requests by then; their rate would look like a result."""
    found = runner(tmp_path)(Order(number=1, plan=plan(dies_after="20"), settings={}, thorough=True))
    assert found.state == "failed" and not found.points
    assert "ended" in (found.because or "") or "illegal memory access" in (found.because or "")


def test_a_server_that_answers_nonsense_is_no_measurement(tmp_path: Path) -> None:
    found = runner(tmp_path)(Order(number=1, plan=plan(html="1"), settings={}))
    assert found.state == "failed" and found.because


def test_a_port_that_somebody_else_was_quicker_to_take_is_changed(tmp_path: Path) -> None:
    others: list[socket.socket] = []

    def late(launch: Launch, log: Path) -> Running:
        if not others:
            port = int(launch.arguments[1].split("port=")[1].split(")")[0])
            others.append(port_taken(port))
        return begin(launch, log)

    try:
        found = runner(tmp_path, start_process=late, start_limit_s=8.0)(
            Order(number=1, plan=plan(), settings={})
        )
    finally:
        for other in others:
            other.close()
    assert found.state == "measured", found.because


def test_ctrl_c_in_a_load_is_no_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The load itself hands back what it has when it is broken off; a study must not take that for a trial."""
    from model_optimizer.flow import tune as flow

    real = flow.measure

    def broken(*given: object, **named: object) -> object:
        return replace(real(*given, **named), interrupted=True)  # type: ignore[arg-type, type-var]

    monkeypatch.setattr(flow, "measure", broken)
    with pytest.raises(KeyboardInterrupt):
        runner(tmp_path)(Order(number=1, plan=plan(), settings={}))


# -- files of a study

KNOBS = (Knob(name="tpot", values=("1", "2", "3"), default="2", because="", source=""),)


def rate(orders: Sequence[Order]) -> Iterator[tuple[Order, Outcome]]:
    from tests.tune.test_run import point

    for order in orders:
        value = 30.0 / float(order.settings["tpot"])
        yield order, Outcome(state="measured", points=(point(value),), seconds=1.0)


def search(folder: Path, study: Study | None = None, **given: object) -> Study:
    from model_optimizer.core import Slo
    from model_optimizer.tune.objective import Aim

    asked = TuneQuestion(
        plan=PLAN, knobs=KNOBS, aim=Aim(objective="goodput", slo=Slo()), levels=(8.0,), trials=3
    )
    base = {
        "refuse": lambda made: None,
        "predict": lambda made: None,
        "execute": rate,
        "now": lambda: 0.0,
        "saved": lambda made: None,
    }
    fresh = study or Study(plan=PLAN, objective="goodput", levels=(8.0,), knobs=KNOBS, combinations=0)
    return tune(asked, Functions(**{**base, **given}), folder, fresh, lambda text, share: None)  # type: ignore[arg-type]


def test_a_full_disk_under_the_database_is_an_error_of_the_host_and_loses_no_finished_trial(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from optuna.storages import RDBStorage

    real, told = RDBStorage.set_trial_state_values, list[int]()

    def full(self: RDBStorage, *given: object, **named: object) -> object:
        told.append(1)
        if len(told) > 1:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(self, *given, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(RDBStorage, "set_trial_state_values", full)
    with pytest.raises(HostError, match="cannot be read or written") as caught:
        search(tmp_path)
    assert "No space left" in str(caught.value.cause) and any("disk" in hint for hint in caught.value.hint)
    monkeypatch.undo()
    study = search(tmp_path)
    assert len(study.trials) == 3 and study.winner is not None


def test_a_full_disk_under_the_study_file_is_said_and_resumed(tmp_path: Path) -> None:
    def full(made: Study) -> None:
        if made.trials:
            raise HostError("there is no room on the disk", reference="disk-full")

    with pytest.raises(HostError, match="no room"):
        search(tmp_path, saved=full)
    assert len(search(tmp_path).trials) == 3


@pytest.mark.parametrize("content", ["", "{", "null", '{"schema": "study/1"}', "\x00\x01"])
def test_a_study_file_that_is_broken_is_refused_with_the_way_on(tmp_path: Path, content: str) -> None:
    (tmp_path / studies.STUDY).write_text(content)
    fresh = Study(plan=PLAN, objective="goodput", levels=(8.0,), knobs=KNOBS, combinations=0)
    with pytest.raises(UsageError) as caught:
        studies._earlier(tmp_path, fresh)
    assert any("move" in hint for hint in caught.value.hint)


def test_without_its_study_file_a_study_still_has_its_trials(tmp_path: Path) -> None:
    first = search(tmp_path)
    again = search(tmp_path)
    assert again.trials == first.trials


@pytest.mark.parametrize("damage", [b"", b"\x00" * 4096, b"SQLite format 3\x00" + b"\xff" * 4000])
def test_a_database_that_is_broken_is_said_never_written_over(tmp_path: Path, damage: bytes) -> None:
    search(tmp_path)
    (tmp_path / DATABASE).write_bytes(damage)
    with suppress(HostError):
        found = search(tmp_path)
        assert not damage and len(found.trials) == 3  # an empty file is an empty database
    assert damage == b"" or (tmp_path / DATABASE).read_bytes() == damage

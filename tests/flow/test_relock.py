"""The record of a tuned deployment beside a machine of later."""

from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.flow.test_recheck import HOSTS, LAPTOP
from tests.flow.test_tune import PLAN

from model_optimizer.cli.commands import plan as command
from model_optimizer.core import Host, codec, digest
from model_optimizer.core.study import Lock, Study
from model_optimizer.flow.relock import locked, relock
from model_optimizer.flow.tune import lock_of

VERSIONS = {"vllm": "0.25.1", "torch": "2.11.0"}
LOCK = Lock(
    plan=PLAN,
    plan_digest=digest.of_noun(PLAN),
    gpu=LAPTOP.gpus[0].name if LAPTOP.gpus else None,
    gpus=1,
    driver=LAPTOP.driver_version,
    image=None,
    engine="vllm",
    engine_version="0.25.1",
    versions=VERSIONS,
    date="2026-11-30",
)


def statuses(lock: Lock, host: Host = LAPTOP, installed: dict[str, str] | None = None) -> dict[str, str]:
    found = relock(lock, host, lambda: VERSIONS if installed is None else installed)
    return {one.check: one.status for one in found.findings}


def test_what_it_was_measured_on_holds() -> None:
    assert set(statuses(LOCK).values()) == {"ok"}


@pytest.mark.parametrize(
    ("lock", "host", "installed", "check", "status"),
    [
        (LOCK, replace(LAPTOP, driver_version="1.2.3"), None, "measured driver", "warn"),
        (LOCK, replace(LAPTOP, driver_version=None), None, "measured driver", "unknown"),
        (LOCK, replace(LAPTOP, gpus=()), None, "measured GPU", "fail"),
        (LOCK, replace(LAPTOP, gpus=None), None, "measured GPU", "unknown"),
        (LOCK, LAPTOP, {**VERSIONS, "vllm": "0.33.0"}, "vllm", "fail"),
        (LOCK, LAPTOP, {**VERSIONS, "torch": "2.13.0"}, "torch", "warn"),
        (LOCK, LAPTOP, {}, "vllm", "unknown"),
        (replace(LOCK, plan=replace(PLAN, gpus=2)), LAPTOP, None, "measured plan", "fail"),
    ],
)
def test_what_has_changed_is_said_as_grave_as_it_is(
    lock: Lock, host: Host, installed: dict[str, str] | None, check: str, status: str
) -> None:
    found = statuses(lock, host, installed)
    assert found.pop(check) == status
    assert "fail" not in found.values()


def test_the_command_takes_the_lock_of_a_study(tmp_path: Path) -> None:
    path = tmp_path / "lock.json"
    lock = replace(LOCK, plan=(plan := replace(PLAN, gpu=LOCK.gpu)), plan_digest=digest.of_noun(plan))
    path.write_text(codec.dumps(lock))
    host = ["--host", str(HOSTS / "rtx4060-laptop.json")]
    done = CliRunner().invoke(command.COMMAND, ["--check", str(path), *host])
    assert "measured driver" in done.stdout and "memory" in done.stdout
    path.write_text(codec.dumps(replace(lock, gpu=None, driver=None, engine="vllm_cpu", versions={})))
    done = CliRunner().invoke(command.COMMAND, ["--check", str(path), *host])
    assert done.exit_code == 1 and "this is" in done.stdout


def test_the_digest_of_a_study_is_that_of_the_plan_as_it_reads_later(tmp_path: Path) -> None:
    """A limit of 25 that was named as a whole number is 25.0 in the file."""
    study = Study(plan=PLAN, objective="goodput", levels=(8.0,), knobs=(), combinations=0)
    path = tmp_path / "lock.json"
    path.write_text(codec.dumps(lock_of(study, LAPTOP, date="2026-11-30", versions={})))
    found = locked(path)
    assert found is not None
    assert statuses(found)["measured plan"] == "ok"


def test_a_plan_is_no_lock(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    path.write_text(codec.dumps(PLAN))
    assert locked(path) is None and locked(tmp_path / "none") is None

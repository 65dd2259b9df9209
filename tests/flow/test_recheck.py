"""A written plan is asked again: what still holds, what changed, what broke."""

import dataclasses
import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from model_optimizer import api
from model_optimizer.cli.commands import plan as command
from model_optimizer.core import Host, Plan, codec
from model_optimizer.flow import plan as asking
from model_optimizer.flow.recheck import Recheck, recheck

HOSTS = Path(__file__).parents[1] / "hosts"
QWEN = "Qwen/Qwen3-0.6B"
LAPTOP = api.load_host(HOSTS / "rtx4060-laptop.json")


@pytest.fixture(scope="module")
def made() -> Plan:
    request = asking.PlanRequest(model=api.read_model(QWEN), checkpoint=QWEN, host=LAPTOP, qps=5.0)
    return api.plan(request)


def ask(plan: Plan, *, gpu: str | None = None, host: Host = LAPTOP, driver: str | None = None) -> Recheck:
    read = api.read_model(QWEN)
    site, card = asking.here(
        asking.PlanRequest(model=read, checkpoint=QWEN, gpu=gpu, host=host, driver=driver)
    )
    return recheck(plan, host, card, site, asking.functions(), read.spec)


def statuses(found: Recheck) -> dict[str, str]:
    return {one.check: one.status for one in found.findings}


def test_a_fresh_plan_holds_where_it_was_made(made: Plan) -> None:
    found = ask(made)
    assert found.holds
    assert set(statuses(found).values()) == {"ok"}
    assert {"machine", "gpus", "architecture", "driver", "number format", "settings", "memory"} <= set(
        statuses(found)
    )


def test_an_older_driver_breaks_it_or_changes_the_image(made: Plan) -> None:
    assert statuses(ask(made, driver="500.1"))["driver"] == "fail"
    older = ask(made, driver="550.54.15")
    assert older.holds
    assert statuses(older)["image"] == "warn"
    assert any("-cu129" in one.message for one in older.findings)


def test_another_gpu_or_too_few_of_them(made: Plan) -> None:
    assert statuses(ask(made, gpu="rtx 4090"))["gpus"] == "fail"
    assert statuses(ask(dataclasses.replace(made, gpus=2)))["gpus"] == "fail"


def test_a_setting_that_the_release_does_not_take(made: Plan) -> None:
    settings = tuple(
        dataclasses.replace(s, name="task") if s.name == "reasoning-parser" else s for s in made.settings
    )
    found = ask(dataclasses.replace(made, settings=settings))
    assert statuses(found)["settings"] == "fail"
    changed = ask(dataclasses.replace(made, command=("vllm", "serve", "other")))
    assert statuses(changed)["settings"] == "warn"


def test_memory_that_others_took_since(made: Plan) -> None:
    assert LAPTOP.gpus
    busy = dataclasses.replace(LAPTOP.gpus[0], memory_free_bytes=2 << 30)
    found = ask(made, host=dataclasses.replace(LAPTOP, gpus=(busy,)))
    assert statuses(found)["memory"] == "fail"
    assert statuses(found)["machine"] == "warn"


def test_the_command(made: Plan, tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    path.write_text(codec.dumps(made))
    run = CliRunner().invoke
    host = ["--host", str(HOSTS / "rtx4060-laptop.json")]
    done = run(command.COMMAND, ["--check", str(path), *host])
    assert done.exit_code == 0
    assert done.stdout.startswith("Qwen/Qwen3-0.6B with vllm 0.33.0: holds\n  ok    machine ")
    done = run(command.COMMAND, ["--check", str(path), "--gpu", "rtx 4090", "--json"])
    assert done.exit_code == 1
    assert json.loads(done.stdout)["findings"][1]["status"] == "fail"
    for words, said in (([QWEN, "--check", str(path)], "takes the model"), ([], "no model was named")):
        assert said in str(run(command.COMMAND, words).exception)

"""`mopt env`: its screens, its exit codes, and that it decides nothing by itself."""

import json
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from inline_snapshot import snapshot

from model_optimizer.cli import render_env
from model_optimizer.cli.commands.env import COMMAND
from model_optimizer.core import Needs, UsageError
from model_optimizer.system import environments
from model_optimizer.system.environments import Bundle, Environment
from model_optimizer.system.environments.bundles import Piece

NEEDS = Needs(download_bytes=300 << 20, disk_bytes=2 << 30, memory_bytes=1 << 30)
READY = Environment(
    name="onnx",
    title="ONNX Runtime",
    condition="ready",
    path="/home/me/environments/onnx",
    needs=NEEDS,
    python="3.11.7",
    made_at="2026-11-30T13:54:22+00:00",
    disk_bytes=1421164544,
    seconds=41.0,
)
MISSING = Environment(
    name="vllm_cpu",
    title="vLLM",
    condition="missing",
    path="/home/me/environments/vllm_cpu",
    needs=NEEDS,
)


def run(*arguments: str) -> tuple[int, str]:
    """Exit code and stdout; an error of ours comes through."""
    found = CliRunner().invoke(COMMAND, list(arguments), standalone_mode=False)
    if found.exception and not isinstance(found.exception, click.exceptions.Exit):
        raise found.exception
    code = found.return_value if isinstance(found.return_value, int) else found.exit_code
    return code, found.stdout


def test_the_list() -> None:
    assert render_env.environments_text([READY, MISSING]) == snapshot("""\
environment  state    python      disk  download  what it is for
-----------  -------  ------  --------  --------  --------------
onnx         ready    3.11.7  1.32 GiB         -  ONNX Runtime
vllm-cpu     missing  -          2 GiB   300 MiB  vLLM

make one with: mopt env create NAME
""")


def test_one_that_is_ready() -> None:
    assert render_env.environment_text(READY) == snapshot("""\
onnx: ready
  Python 3.11.7, 1.32 GiB, made 2026-11-30T13:54:22+00:00
  /home/me/environments/onnx
""")


def test_one_that_is_missing() -> None:
    assert render_env.environment_text(MISSING) == snapshot("""\
vllm-cpu: missing
  making it downloads 300 MiB and writes 2 GiB: mopt env create vllm-cpu
""")


def test_one_that_drifted() -> None:
    import dataclasses

    because = ("torch is 2.9.1, the lock has 2.13.0", "a \x1b[31mcolour from outside")
    text = render_env.environment_text(dataclasses.replace(READY, condition="damaged", because=because))
    assert text == snapshot("""\
onnx: damaged
  torch is 2.9.1, the lock has 2.13.0
  a \\x1b[31mcolour from outside
  make it again: mopt env create onnx --again
  Python 3.11.7, 1.32 GiB, made 2026-11-30T13:54:22+00:00
  /home/me/environments/onnx
""")


def test_a_bundle() -> None:
    part = Piece(file="onnx.001", bytes=38 << 20, digest="sha256:0")
    bundle = Bundle(
        name="vllm_cpu",
        lock_digest="sha256:0",
        python="3.12",
        platform="linux-x86_64",
        glibc="2.31",
        wheels=(Piece(file="a-1-py3-none-any.whl", bytes=76 << 20, digest="sha256:0"),),
        parts=(part, part),
    )
    assert render_env.bundle_text(bundle, "my folder") == snapshot("""\
vllm-cpu: 1 packages, 76 MiB in 2 parts of at most 38 MiB
  for linux-x86_64, Python 3.12, glibc 2.31 or newer
  there: mopt env create vllm-cpu --from 'my folder'
""")


def test_list_and_check_as_json(own_environments: Path) -> None:
    code, out = run("list", "--json")
    assert code == 0
    found = {env["name"]: env for env in json.loads(out)["environments"]}
    assert {"onnx", "vllm_cpu"} <= set(found)
    assert found["onnx"]["condition"] == "missing"
    code, out = run("check", "vllm-cpu", "--json")
    assert code == 1
    assert json.loads(out)["schema"] == "environment/1"


def test_dry_run_prints_commands_and_runs_none(own_environments: Path) -> None:
    code, out = run("create", "onnx", "--dry-run")
    assert code == 0
    assert [line.split(" -m ")[1].split()[0] for line in out.splitlines()] == ["venv", "pip", "compileall"]
    code, out = run("bundle", "onnx", "--python", "3.12", "--out", "x", "--dry-run", "--json")
    commands = json.loads(out)["commands"]
    assert "torch==2.13.0" in commands[0]
    assert "--python-version=3.12" in commands[0]
    assert not own_environments.exists()


@pytest.mark.parametrize(
    "arguments",
    [
        ("create", "nope"),
        ("check", "nope"),
        ("remove", "onnx"),
        ("create", "onnx", "--index", "nope"),
        ("bundle", "onnx", "--python", "3.9", "--out", "x"),
        ("bundle", "onnx", "--python", "3.12", "--out", "x", "--platform", "amiga"),
        ("bundle", "onnx", "--python", "3.12", "--out", "x", "--max-part", "much"),
    ],
)
def test_wrong_requests_are_usage_errors(own_environments: Path, arguments: tuple[str, ...]) -> None:
    with pytest.raises(UsageError):
        run(*arguments)


def test_options_reach_the_stage(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    seen: dict[str, object] = {}

    def create(name: str, **options: object) -> Environment:
        seen.update(name=name, **options)
        return READY

    monkeypatch.setattr(environments, "create", create)
    code, out = run(
        "create", "onnx", "--from", str(tmp_path), "--index", "torch-cpu", "--again", "--python", "p"
    )
    assert (code, out.splitlines()[0]) == (0, "onnx: ready")
    del seen["progress"]
    assert seen == {
        "name": "onnx", "python": Path("p"), "from_dir": tmp_path, "indexes": ("torch-cpu",), "again": True,
    }  # fmt: skip

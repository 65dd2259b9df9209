"""`mopt deploy`: targets, files, and what is refused."""

import json
from pathlib import Path

from click.testing import CliRunner

from model_optimizer.cli.app import app
from model_optimizer.core import UsageError


def test_it_writes_a_repository_and_says_where(tmp_path: Path) -> None:
    made = tmp_path / "net"
    made.mkdir()
    value = {"name": "x", "type": "tensor(float)", "shape": ["batch", 3, 8, 8]}
    facts = {"task": "vision", "scheme": "fp32", "inputs": [value], "outputs": [{**value, "name": "y"}]}
    (made / "mopt.json").write_text(json.dumps(facts))
    (made / "model.onnx").write_bytes(b"graph")
    found = CliRunner().invoke(
        app, ["deploy", str(made), "--to", "triton", "--out", str(tmp_path / "r"), "--json"]
    )
    assert found.exit_code == 0, found.output
    assert json.loads(found.stdout)["model"] == str(tmp_path / "r" / "net")
    assert "dims: [ 3, 8, 8 ]" in (tmp_path / "r/net/config.pbtxt").read_text()


def test_targets_are_listed() -> None:
    found = CliRunner().invoke(app, ["deploy", "--targets"])
    assert found.exit_code == 0 and found.stdout.startswith("triton  ")


def test_an_unknown_target_and_missing_words_are_refused(tmp_path: Path) -> None:
    for words in (["--to", "mars"], [], ["--to", "triton"]):
        found = CliRunner().invoke(app, ["deploy", *words, *([str(tmp_path)] if words else [])])
        assert isinstance(found.exception, UsageError) and found.exception.hint

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


def test_the_target_is_compared_with_what_the_engine_is_for(tmp_path: Path) -> None:
    made = tmp_path / "net"
    made.mkdir()
    engine = {
        "file": "model.engine", "library": "tensorrt", "version": "11.4.0", "compute_capabilities": ["8.9"],
        "profiles": [{"batch": [1, 2, 4], "sequence": [1, 32, 64]}],
    }  # fmt: skip
    (made / "mopt.json").write_text(json.dumps({"task": "embed", "scheme": "fp16", "engine": engine}))
    (made / "model.engine").write_bytes(b"engine")
    words = ["deploy", str(made), "--to", "triton", "--out", str(tmp_path / "r")]
    for more, says in (
        (["--gpu", "h200"], "does not run on"),
        (["--tensorrt", "10.13"], "10.13 will run it"),
        (["--tensorrt", "new"], "is not a version"),
        (["--prompt-tokens", "100"], "sequence ends at 64"),
    ):
        found = CliRunner().invoke(app, [*words, *more])
        assert isinstance(found.exception, UsageError) and says in found.exception.message
    found = CliRunner().invoke(
        app, [*words, "--gpu", "l4", "--tensorrt", "11.4.0.106", "--prompt-tokens", "64"]
    )
    assert found.exit_code == 0, found.output

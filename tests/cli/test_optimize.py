"""What is refused before anything is made, in one clear error each."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from model_optimizer import api
from model_optimizer.cli.app import app
from model_optimizer.core import ModelSpec
from model_optimizer.flow import optimize as pipeline
from model_optimizer.flow.optimize import Request
from model_optimizer.flow.wiring import Choices, Wiring
from model_optimizer.system import environments
from model_optimizer.system.runs import RunFolder

TINY = Path(__file__).parents[2] / "examples/models/tiny-qwen3"


def optimize(*arguments: str | Path, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "model_optimizer", "optimize", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=cwd)


def refused(done: subprocess.CompletedProcess[str], words: str, code: int = 2) -> None:
    assert done.returncode == code, done.stderr
    assert words in done.stderr
    assert "hint:" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--for", "0s"), "--for must be longer"),
        (("--prompt-tokens", "5000"), "too long for `tiny-qwen3`"),
        (("--prompt-tokens", "2040", "--output-tokens", "100"), "2,140 tokens are too long"),
        (("--qps", "2", "--concurrency", "2"), "exclude each other"),
        (("--schemes", "int5"), "there is no scheme `int5`"),
        (("--engines", "warp"), "there is no engine `warp`"),
        (("--texts", "/nowhere.jsonl"), "/nowhere.jsonl"),
    ],
)
def test_what_makes_no_sense_is_refused_before_anything_is_made(
    options: tuple[str, ...], words: str, tmp_path: Path
) -> None:
    refused(optimize(TINY, "--dry-run", "--runs", tmp_path / "runs", *options), words)
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("content", [b"", b"\x00\xff\xfe" * 100])
def test_texts_that_are_none_are_refused_at_once(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "texts.txt").write_bytes(content)
    refused(optimize(TINY, "--dry-run", "--texts", tmp_path / "texts.txt"), "texts.txt")


def test_a_model_without_tokenizer_is_refused_at_once(tmp_path: Path) -> None:
    model = tmp_path / "model"
    shutil.copytree(TINY, model)
    for file in model.glob("tokenizer*"):
        file.unlink()
    refused(optimize(model, "--dry-run"), "has no tokenizer")


@pytest.mark.parametrize("model", ["Qwen/Qwen3-0.6B", "nobody/has-this"])
def test_a_model_that_is_not_here_is_refused_before_an_environment_is_made(
    model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the same words as the commands that make one artefact."""
    monkeypatch.setenv("MOPT_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    done = optimize(model, "--runs", tmp_path / "runs")
    refused(done, "has no weights on this machine" if "Qwen" in model else "is not in the built-in table")
    assert ("hint: hf download Qwen/Qwen3-0.6B" in done.stderr) == ("Qwen" in model)
    quantize = [sys.executable, "-m", "model_optimizer", "quantize", model, "--scheme", "fp8", "--out"]
    other = subprocess.run([*quantize, tmp_path / "out"], capture_output=True, text=True, check=False)
    assert other.stderr == done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_run_keeps_what_it_was_asked(tmp_path: Path) -> None:
    refused(optimize("--resume", tmp_path, "--schemes", "int8"), "--schemes and --resume exclude each other")
    refused(optimize(TINY, "--resume", tmp_path), "a MODEL and --resume exclude each other")
    refused(optimize("--resume", tmp_path, "--dry-run"), "--dry-run and --resume exclude each other")
    refused(optimize("--resume", tmp_path), "is not a run folder")


@pytest.mark.parametrize(("more", "seconds"), [((), 2.0), (("--for", "9s"), 9.0)])
def test_a_run_that_was_killed_before_its_plan_goes_on_as_it_was_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: tuple[str, ...], seconds: float
) -> None:
    texts = tmp_path / "texts.txt"
    texts.write_text("One.\n" * 100)
    seen: list[Choices] = []
    wiring = api._wiring  # pyright: ignore[reportPrivateUsage]

    def killed(folder: RunFolder, request: Request | None, *_more: object) -> None:
        if request is not None:
            pipeline._begin(folder, request)  # pyright: ignore[reportPrivateUsage]
        raise KeyboardInterrupt

    def noted(choices: Choices, model: ModelSpec) -> Wiring:
        seen.append(choices)
        return wiring(choices, model)

    monkeypatch.setattr(environments, "ensure", lambda *_words, **_more: None)
    monkeypatch.setattr(pipeline, "optimize", killed)
    monkeypatch.setattr(api, "_wiring", noted)
    words = ["--engines", "onnxruntime", "--schemes", "int8-weight", "--vram", "2GiB", "--for", "2s"]
    begin = ["optimize", str(TINY), "--runs", str(tmp_path / "runs"), *words, "--texts", str(texts)]
    CliRunner().invoke(app, begin)
    (made,) = (tmp_path / "runs").iterdir()
    CliRunner().invoke(app, ["optimize", "--resume", str(made), *more])
    first, again = seen
    assert again.engines == ("onnxruntime",)
    assert again.schemes == first.schemes == ("int8-weight",)
    assert (again.budget_bytes, again.texts) == (first.budget_bytes, texts)
    assert (first.seconds, again.seconds) == (2.0, seconds)


def test_candidates_are_json_where_json_was_asked() -> None:
    done = optimize(TINY, "--dry-run", "--json")
    assert done.returncode == 0, done.stderr
    body = json.loads(done.stdout)
    assert body["reference"]["engine"] == "pytorch"
    assert {plan["scheme"] for plan in body["plans"]} >= {"fp32", "int8_weight", "int4_rtn"}
    assert all(rejected["reason"] for rejected in body["rejected"])


def test_a_name_that_is_no_text_is_one_clear_error(tmp_path: Path) -> None:
    name = os.fsencode(tmp_path) + b"/bad\xff\xfe"
    os.mkdir(name)  # noqa: PTH102 - pathlib takes no bytes
    command = [os.fsencode(sys.executable), b"-m", b"model_optimizer", b"optimize", name, b"--dry-run"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    refused(done, "is not text in this system's encoding")


def test_a_name_cannot_forge_lines_or_drive_the_terminal() -> None:
    done = optimize("x\nerror[fake]: injected\x1b[31m", "--dry-run")
    assert done.returncode == 2
    assert "\x1b" not in done.stderr
    assert not any(line.startswith("error[fake]") for line in done.stderr.splitlines())


def test_an_answer_that_cannot_be_written_is_no_bug() -> None:
    with Path("/dev/full").open("w") as full:
        command = [sys.executable, "-m", "model_optimizer", "facts", "gpu"]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 3, done.stderr
    assert "the answer cannot be written" in done.stderr

"""The main job for real: from a checkpoint to a verified, served, measured model and its report."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

ROOT = Path(__file__).parents[2]
TINY = ROOT / "examples/models/tiny-qwen3"
HELDOUT = TINY / "heldout.jsonl"

pytestmark = pytest.mark.engine


def mopt(*arguments: str | Path, runs: Path, timeout_s: int = 400) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "model_optimizer", "optimize", *map(str, arguments), "--runs", str(runs)]
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=False)


def run_folder(runs: Path) -> Path:
    (folder,) = runs.iterdir()
    return folder


def noun(folder: Path, name: str) -> dict[str, object]:
    return json.loads((folder / f"{name}.json").read_text())


def check_served(folder: Path, name: str, *, generates: bool) -> None:
    """What was measured is there and whole."""
    (verdict,) = (folder / f"candidates/{name}").glob("verdict-model.json")
    assert json.loads(verdict.read_text())["outcome"] == "pass"
    points = noun(folder, f"candidates/{name}/measurement")["points"]
    for point in points:  # type: ignore[attr-defined]
        assert point["completed"] > 0
        assert point["failed"] == 0
        assert point["memory_bytes"] > 10 << 20
        assert (point["output_tokens_per_s"] if generates else point["input_tokens_per_s"]) > 0


def test_a_language_model_from_checkpoint_to_report(onnx_env_python: Path, tmp_path: Path) -> None:
    done = mopt(
        TINY, "--texts", HELDOUT, "--engines", "onnxruntime", "--schemes", "fp32,int8_weight,int4_rtn",
        "--for", "2s", runs=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    folder = run_folder(tmp_path)
    run = noun(folder, "run")
    assert {step["state"] for step in run["steps"].values()} == {"done"}  # type: ignore[attr-defined]
    for scheme in ("fp32", "int8_weight"):
        check_served(folder, f"onnxruntime-{scheme}", generates=True)
    _check_int4_is_served_only_if_it_passed(folder)
    assert noun(folder, "plan")["scheme"] == noun(folder, f"candidates/{run['winner']}/plan")["scheme"]
    page = (folder / "report.html").read_text()
    assert "<script" not in page
    assert "http://" not in page.replace("http://127.0.0.1", "").replace("http://www.w3.org", "")
    assert "int8_weight" in done.stdout
    assert "quality" in done.stdout
    assert "Traceback" not in done.stderr


def _check_int4_is_served_only_if_it_passed(folder: Path) -> None:
    base = "candidates/onnxruntime-int4_rtn"
    passed = noun(folder, f"{base}/verdict-model")["outcome"] == "pass"
    assert (folder / f"{base}/measurement.json").exists() == passed
    assert (noun(folder, f"{base}/outcome")["fate"] == "not-served") == (not passed)


def test_an_embedding_model_from_checkpoint_to_report(
    onnx_env_python: Path, minilm: Path, tmp_path: Path
) -> None:
    done = mopt(minilm, "--schemes", "fp32,int8", "--engines", "onnxruntime", "--for", "2s", runs=tmp_path)
    assert done.returncode == 0, done.stderr
    folder = run_folder(tmp_path)
    for scheme in ("fp32", "int8"):
        check_served(folder, f"onnxruntime-{scheme}", generates=False)
    made = noun(folder, "candidates/onnxruntime-int8/artifact")
    assert made["made_from"] != made["digest"]
    assert str(made["path"]).startswith("artifacts/")
    assert "cosine" in done.stdout


def test_vllm_on_the_cpu_is_a_second_engine(
    onnx_env_python: Path, vllm_cpu_env_python: Path, tmp_path: Path
) -> None:
    done = mopt(
        TINY, "--texts", HELDOUT, "--engines", "vllm_cpu", "--schemes", "bf16", "--for", "2s", runs=tmp_path
    )
    assert done.returncode == 0, done.stderr
    check_served(run_folder(tmp_path), "vllm_cpu-bf16", generates=True)


def test_ctrl_c_leaves_nothing_running_and_a_run_that_resume_finishes(
    onnx_env_python: Path, tmp_path: Path
) -> None:
    command = [
        sys.executable, "-m", "model_optimizer", "optimize", str(TINY), "--texts", str(HELDOUT),
        "--engines", "onnxruntime", "--schemes", "int8_weight", "--for", "2s", "--runs", str(tmp_path),
    ]  # fmt: skip
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True) as process:
        assert process.stderr
        for line in process.stderr:
            if "measuring" in line:
                break
        children = psutil.Process(process.pid).children(recursive=True)
        assert children, "a server is running"
        os.killpg(process.pid, signal.SIGINT)
        process.stderr.read()
        assert process.wait(60) == 130
    _, alive = psutil.wait_procs(children, timeout=10)
    assert alive == []
    folder = run_folder(tmp_path)
    made = folder / "candidates/onnxruntime-int8_weight/artifact.json"
    before = made.stat().st_mtime_ns
    command = [sys.executable, "-m", "model_optimizer", "optimize", "--resume", str(folder), "--for", "2s"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert made.stat().st_mtime_ns == before, "what was made is not made again"
    assert (folder / "report.html").exists()


@pytest.mark.parametrize(
    ("spoil", "code", "words"),
    [
        ("missing", 2, "there is no folder"),
        ("no-config", 2, "config.json"),
        ("no-architecture", 2, "architecture"),
        ("truncated", 2, "model.safetensors"),
        ("pickle", 2, "pickle"),
        ("remote-code", 2, "code"),
    ],
)
def test_a_model_that_cannot_be_used_leaves_no_run(spoil: str, code: int, words: str, tmp_path: Path) -> None:
    model = _spoiled(spoil, tmp_path / "model")
    done = mopt(model, runs=tmp_path / "runs")
    assert done.returncode == code, done.stderr
    assert words in done.stderr
    assert done.stderr.startswith("error[")
    assert "hint:" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "runs").exists()


def _spoiled(how: str, folder: Path) -> Path:
    if how == "missing":
        return folder
    shutil.copytree(TINY, folder)
    config = folder / "config.json"
    weights = folder / "model.safetensors"
    content = json.loads(config.read_text())
    match how:
        case "no-config":
            config.unlink()
        case "no-architecture":
            content.pop("architectures")
            content.pop("model_type")
            config.write_text(json.dumps(content))
        case "truncated":
            weights.write_bytes(weights.read_bytes()[:5000])
        case "pickle":
            weights.unlink()
            (folder / "pytorch_model.bin").write_bytes(b"\x80\x02}q\x00.")
        case _:
            content.update(
                architectures=["OddForCausalLM"], model_type="odd",
                auto_map={"AutoModelForCausalLM": "odd.OddForCausalLM"},
            )  # fmt: skip
            config.write_text(json.dumps(content))
    return folder


def test_a_run_folder_that_cannot_be_written_is_one_clear_error(
    tmp_path: Path, onnx_env_python: Path
) -> None:
    (tmp_path / "file").write_text("in the way")
    done = mopt(TINY, runs=tmp_path / "file" / "runs")
    assert done.returncode == 3, done.stderr
    assert "error[unwritable]" in done.stderr
    assert "Traceback" not in done.stderr

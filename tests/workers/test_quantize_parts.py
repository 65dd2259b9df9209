"""A calibration that was killed goes on behind the last finished layer, and ends as if nothing had happened."""

import json
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

import model_optimizer.workers as workers

pytestmark = [pytest.mark.engine, pytest.mark.slow]

WORKERS = Path(workers.__file__).parent
TINY = Path(__file__).parents[2] / "examples/models/tiny-qwen3"
STATISTICS = {"dampening": 1.0, "longest_token": 3, "tokens_per_column": 8}
PARTS = 7
"""Six layers and the end."""
GPTQ = {"method": "gptq", "preset": "W4A16", "group_size": 128, "symmetric": None}


def command(python: Path, place: Path, work: Path, asked: dict[str, Any], worker: str) -> list[Path | str]:
    """What runs a job, whose request lies in `place` then."""
    (place / "out").mkdir(parents=True)
    request = {
        "source": str(TINY), "out": str(place / "out"), "work": str(work), "scheme": "s", "task": "generate",
        "search_steps": 3, "calibration": {"samples": None, "count": 4, "length": 64}, "statistics": STATISTICS,
        **asked,
    }  # fmt: skip
    (place / "request.json").write_text(json.dumps(request))
    return [python, "-P", WORKERS / f"{worker}.py", place / "request.json", place / "result.json"]


def run(
    python: Path, place: Path, work: Path, asked: dict[str, Any], worker: str = "quantize_calibrated"
) -> tuple[dict[str, Any], str]:
    job = command(python, place, work, asked, worker)
    done = subprocess.run(job, capture_output=True, text=True, timeout=400, check=False)
    return json.loads((place / "result.json").read_text()), done.stderr


@pytest.mark.parametrize(
    "asked",
    [
        GPTQ,
        {"method": "awq", "preset": "W4A16", "group_size": 128, "symmetric": False},
        {"method": "smoothquant", "preset": "W8A8", "group_size": 0},
        {"method": "static", "preset": "FP8", "group_size": 0, "kv": True},
        {"method": "static", "preset": "NVFP4", "group_size": 16},
    ],
    ids=lambda asked: f"{asked['method']}-{asked['preset']}",
)
@pytest.mark.parametrize("finished", [3])
def test_it_ends_as_if_it_had_not_been_killed(
    llm_compressor_env_python: Path, tmp_path: Path, asked: dict[str, Any], finished: int
) -> None:
    work = tmp_path / "work"
    result, _ = run(llm_compressor_env_python, tmp_path / "whole", work, asked)
    assert "error" not in result, result
    kept = sorted(work.iterdir())
    assert [path.name for path in kept] == [f"part-{n:05d}.safetensors" for n in range(PARTS)]
    for path in kept[finished:]:
        path.unlink()  # as a kill in the next part leaves it

    result, said = run(llm_compressor_env_python, tmp_path / "again", work, asked)
    assert "error" not in result, result
    assert f"{finished} of {PARTS} parts were finished before" in said
    assert f"calibrating part {finished + 1} of {PARTS}" in said
    for name in ("model.safetensors", "config.json"):
        one, two = (tmp_path / run / "out" / name for run in ("whole", "again"))
        assert one.read_bytes() == two.read_bytes(), name


def test_a_job_that_was_killed_ends_as_if_it_had_not_been(
    llm_compressor_env_python: Path, tmp_path: Path
) -> None:
    """A real kill, in the layer behind the third; the tensors are those of a job that nothing broke off."""
    killed = tmp_path / "killed-work"
    job = command(llm_compressor_env_python, tmp_path / "killed", killed, GPTQ, "quantize_calibrated")
    with subprocess.Popen(job, stderr=subprocess.PIPE, text=True) as running:
        assert running.stderr is not None
        for line in running.stderr:
            if "calibrating part 4 of 7" in line:
                running.kill()
                break
    assert running.returncode == -signal.SIGKILL
    finished = {path.name: path.read_bytes() for path in killed.glob("part-*.safetensors")}
    assert 3 <= len(finished) < PARTS
    assert not (tmp_path / "killed/result.json").exists()

    result, said = run(llm_compressor_env_python, tmp_path / "again", killed, GPTQ)
    assert "error" not in result, result
    assert f"{len(finished)} of {PARTS} parts were finished before" in said
    whole, _ = run(llm_compressor_env_python, tmp_path / "whole", tmp_path / "whole-work", GPTQ)
    assert "error" not in whole, whole
    one, two = (tmp_path / name / "out/model.safetensors" for name in ("again", "whole"))
    assert one.read_bytes() == two.read_bytes()
    for path in sorted((tmp_path / "whole-work").iterdir()):
        assert (killed / path.name).read_bytes() == path.read_bytes(), path.name


def test_mixed_goes_on_with_the_scores_that_it_had(modelopt_env_python: Path, tmp_path: Path) -> None:
    asked = {"formats": ["NVFP4_DEFAULT_CFG", "FP8_DEFAULT_CFG"], "bits": 6.0}
    work = tmp_path / "work"
    _, first = run(modelopt_env_python, tmp_path / "whole", work, asked, "quantize_mixed")
    result, second = run(modelopt_env_python, tmp_path / "again", work, asked, "quantize_mixed")
    assert "error" not in result, result
    assert "scores of an earlier try" not in first
    assert "scores of an earlier try" in second
    one, two = (tmp_path / run / "out" / "model.safetensors" for run in ("whole", "again"))
    assert one.read_bytes() == two.read_bytes()

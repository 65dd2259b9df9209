"""`mopt calibrate`: measure a GPU here, or take what the script measured elsewhere, and keep what follows."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

from model_optimizer.core import HostError, Progress, ToolError, UsageError
from model_optimizer.core.calibration import Calibration
from model_optimizer.facts import gpus
from model_optimizer.planner import calibrate as room
from model_optimizer.system import calibrations, files, models

SCRIPT = Path(__file__).parents[1] / "workers" / "calibrate.py"
CONTRACT = SCRIPT.with_name("_contract.py")


def run(
    python: Path, *, model: str, gpu: str | None, seconds: float, progress: Progress
) -> tuple[Calibration, Path]:
    """Measure with the PyTorch of an interpreter. HostError when it sees no GPU."""
    from model_optimizer.system.environments import worker

    if not python.is_file():
        raise UsageError(
            f"there is no interpreter `{python}`", hint=("name the `bin/python` of an environment",)
        )
    try:
        answer = worker.run_job(
            python,
            "calibrate",
            room.request(models.read(model), seconds),
            progress,
            env=worker.variables("onnx", python),
            timeout_s=10 * seconds + 120,
        )
    except ToolError as error:
        if any("No module named 'torch'" in cause for cause in error.cause):
            raise HostError(
                f"`{python}` has no PyTorch",
                hint=("name an interpreter that has it, with CUDA: --python PATH, for example that of vLLM",),
                reference="environment-missing",
            ) from error
        raise
    return keep(answer, gpu=gpu)


def keep(answer: Mapping[str, Any], *, gpu: str | None) -> tuple[Calibration, Path]:
    """The constants of an answer of the script, and where they are kept. ToolError when it holds nothing."""
    room.check(answer)
    fact = gpus.find(gpu or str(answer["device"]))
    found = room.calibration(answer, fact, date=datetime.now(UTC).date().isoformat())
    return found, calibrations.write(found)


def read_answer(path: Path) -> Mapping[str, Any]:
    """What the script wrote elsewhere. UsageError when it is not JSON of that kind."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(f"`{path}` could not be read", cause=(str(error),)) from error
    if not isinstance(found, dict):
        raise UsageError(f"`{path}` is no answer of the script", hint=("pass the result.json that it wrote",))
    return cast("Mapping[str, Any]", found)


def write_request(path: Path, *, model: str, seconds: float) -> str:
    """What to measure, for a machine without mopt; the command that measures it there."""
    files.write_atomic(path, json.dumps(room.request(models.read(model), seconds), indent=1) + "\n")
    return f"python {SCRIPT.name} {path.name} result.json"

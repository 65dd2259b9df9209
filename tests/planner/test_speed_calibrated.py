"""Micro-benchmarks of a GPU replace the constants of its generation."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from model_optimizer.cli.app import app
from model_optimizer.cli.render_estimate import calibration_text
from model_optimizer.core import HostError, ToolError, UsageError
from model_optimizer.core.calibration import Calibration, KernelRates
from model_optimizer.facts import gpus, speed
from model_optimizer.planner import calibrate as room
from model_optimizer.planner.speed import calibrated, roofline
from model_optimizer.planner.speed.calibrated import Timing
from model_optimizer.system import calibrations
from model_optimizer.system.environments import worker

from .speed_cases import model, setup

L4 = gpus.find("l4")
START = speed.generation((8, 9)).gemm["bf16"]


def timings(launch: float, bandwidth: float, compute: float) -> list[Timing]:
    """What a GPU with these constants would take."""
    found = []
    for outputs, inputs in calibrated.shapes(model()):
        for tokens in calibrated.TOKENS:
            bytes_ = outputs * inputs * 2 + tokens * (inputs + outputs) * 2
            memory = bytes_ / L4.bandwidth_bytes_per_s / bandwidth
            work = 2 * tokens * outputs * inputs / (L4.peak_per_s("bf16") or 1) / compute
            q = START.blend
            found.append(Timing(tokens, outputs, inputs, launch + (memory**q + work**q) ** (1 / q)))
    return found


def answer(products: dict[str, list[Any]], **more: Any) -> dict[str, Any]:
    return {"device": "NVIDIA L4", "torch": "2.13.0", "products": products, "notes": [], **more}


def test_the_shapes_are_those_of_the_model() -> None:
    assert (24576, 4096) in calibrated.shapes(model()) and (6144, 4096) in calibrated.shapes(model())


@pytest.mark.parametrize(("launch", "bandwidth", "compute"), [(5e-6, 0.9, 0.4), (12e-6, 0.6, 0.8)])
def test_constants_are_found_again(launch: float, bandwidth: float, compute: float) -> None:
    found = calibrated.fit(timings(launch, bandwidth, compute), "bf16", L4, START)
    assert found is not None
    assert found.bandwidth == pytest.approx(bandwidth, rel=0.03)
    assert found.compute == pytest.approx(compute, rel=0.03)
    assert found.error < 0.02


def test_a_few_points_are_not_enough() -> None:
    assert calibrated.fit(timings(5e-6, 0.9, 0.4)[:5], "bf16", L4, START) is None
    with pytest.raises(ToolError) as error:
        room.calibration(answer({}, notes=["out of memory"]), L4, date="2026-11-30")
    assert error.value.cause == ("out of memory",)


def made(bandwidth: float, compute: float) -> Calibration:
    rows = [[t.tokens, t.outputs, t.inputs, t.seconds] for t in timings(5e-6, bandwidth, compute)]
    return room.calibration(answer({"bf16": rows}), L4, date="2026-11-30")


def test_a_slower_card_is_predicted_slower() -> None:
    plain = roofline(setup("l4"))
    slow = roofline(setup("l4"), calibration=made(0.4, 0.2))
    assert slow.decode_ms(1, 100) > 1.6 * plain.decode_ms(1, 100)
    assert slow.prefill_ms(2048) > 1.6 * plain.prefill_ms(2048)
    assert "NVIDIA L4 itself" in slow.provenance


def test_a_calibrated_card_borrows_no_kernels() -> None:
    assert roofline(setup("rtx 3090")).kind == "roofline-borrowed"
    assert roofline(setup("rtx 3090"), calibration=made(0.9, 0.7)).kind == "roofline"


def test_what_was_found_is_kept_and_used_by_the_command() -> None:
    line = ["estimate", "Qwen/Qwen3-0.6B", "--gpu", "l4", "--json"]
    before = json.loads(CliRunner().invoke(app, line).output)
    calibrations.write(made(0.4, 0.2))
    after = json.loads(CliRunner().invoke(app, line).output)
    assert after["tpot_ms"]["mean"] > 1.5 * before["tpot_ms"]["mean"]
    assert "NVIDIA L4 itself" in after["provenance"]
    assert calibrations.read("L4") == made(0.4, 0.2)
    assert calibrations.read("A10") is None


def test_a_broken_file_is_named() -> None:
    calibrations.write(made(0.4, 0.2))
    calibrations.path("L4").write_text("{")
    with pytest.raises(UsageError) as error:
        calibrations.read("L4")
    assert "l4.json" in error.value.message


def test_the_screen_says_what_was_found() -> None:
    found = Calibration(
        gpu="L4", device="NVIDIA L4", torch="2.13.0", date="2026-11-30", copy_bytes_per_s=250e9, eager_launch_us=4.0,
        kernels={"bf16": KernelRates(launch_us=5, bandwidth=0.8, compute=0.5, blend=3, points=50, error=0.04)},
    )  # fmt: skip
    text = calibration_text(found, "/data/l4.json")
    assert "80%" in text and "50%" in text and "250 GB/s" in text and "/data/l4.json" in text


def test_an_interpreter_that_is_not_there() -> None:
    found = CliRunner().invoke(app, ["calibrate", "--python", "/nowhere/python"])
    assert isinstance(found.exception, UsageError)


def test_an_interpreter_without_pytorch_is_told_of_the_option_that_names_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fails(*_: object, **__: object) -> None:
        raise ToolError("`calibrate` failed", cause=("ModuleNotFoundError: No module named 'torch'",))

    monkeypatch.setattr(worker, "run_job", fails)
    found = CliRunner().invoke(app, ["calibrate"])
    assert isinstance(found.exception, HostError)
    assert "--python PATH" in found.exception.hint[0]


def test_a_slow_host_makes_steps_without_graphs_slower() -> None:
    quick, slow = (replace(made(0.8, 0.6), eager_launch_us=us) for us in (3.0, 9.0))
    one, other = (
        roofline(setup("l4", name="Qwen/Qwen3-0.6B", eager=True), calibration=c) for c in (quick, slow)
    )
    assert other.decode_ms(1, 100) > 2 * one.decode_ms(1, 100)
    covered = [roofline(setup("l4"), calibration=c).decode_ms(1, 100) for c in (quick, slow)]
    assert covered[0] == covered[1], "graphs hide the host"


def test_steady_clocks_count_once_for_products_and_slow_the_rest() -> None:
    """Products were timed under steady work; attention was not, and takes what was measured."""
    known = made(0.8, 0.6)
    cool, hot = (roofline(setup("l4"), calibration=replace(known, sustained=s)) for s in (1.0, 0.7))
    assert [one.computed for one in cool.dense] == pytest.approx([one.computed for one in hot.dense])
    assert hot.prefill_ms(4096) > cool.prefill_ms(4096)


def test_slow_copies_and_launches_slow_what_lies_between_products() -> None:
    known = made(0.8, 0.6)
    slow = replace(known, copy_bytes_per_s=100e9, graph_launch_us=3.0)
    plain = replace(known, copy_bytes_per_s=263e9, graph_launch_us=1.03)
    assert roofline(setup("l4"), calibration=plain).passes == pytest.approx(roofline(setup("l4")).passes)
    assert roofline(setup("l4"), calibration=slow).passes > 2 * roofline(setup("l4")).passes
    assert roofline(setup("l4"), calibration=slow).moved > 2 * roofline(setup("l4")).moved


def test_the_answer_of_a_real_h200_makes_estimates_of_it(tmp_path: Path) -> None:
    """What the script wrote there, through the command: what follows is near what vLLM did there.

    The GPU's figures are of the second run; the load ran on the host of the first.
    """
    evidence = Path(__file__).parents[2] / "evidence/speed-model"
    said = json.loads((evidence / "calibrate-h200.json").read_text())
    first = json.loads((evidence / "calibrate-h200-first.json").read_text())
    answer = tmp_path / "answer.json"
    answer.write_text(json.dumps(said | {"eager_launch_us": first["eager_launch_us"]}))
    found = CliRunner().invoke(app, ["calibrate", "--answer", str(answer), "--json"])
    assert found.exit_code == 0, found.output
    kept = json.loads(found.output)
    assert kept["gpu"] == "H200 SXM 141GB"
    assert 0.7 < kept["kernels"]["bf16"]["bandwidth"] < 1
    assert kept["kernels"]["bf16"]["error"] < 0.1
    line = "estimate Qwen/Qwen3-8B --gpu h200 --engine vllm==0.25.1 --concurrency 32 --requests 128 "
    line += "--prompt-tokens 512 --output-tokens uniform:96,160"
    said = json.loads(CliRunner().invoke(app, [*line.split(), "--step-model", "roofline", "--json"]).output)
    assert said["tpot_ms"]["mean"] == pytest.approx(8.6, rel=0.12), "8.616 ms measured"
    assert said["output_tokens_per_s"] == pytest.approx(2996, rel=0.12)


def test_what_to_measure_elsewhere_is_written_down(tmp_path: Path) -> None:
    file = tmp_path / "request.json"
    found = CliRunner().invoke(app, ["calibrate", "--write-request", str(file), "--for", "20s"])
    assert found.exit_code == 0 and "python calibrate.py request.json result.json" in found.output
    assert json.loads(file.read_text())["seconds"] == 20


@pytest.mark.parametrize(
    "text",
    ["{", "[]", "{}", '{"device": "x", "torch": "2", "products": {"bf16": [[1, 2, 3]]}}',
     '{"device": "x", "torch": "2", "products": {"bf16": [[1, 2, 3, -4]]}}',
     '{"device": "cpu", "torch": "2", "products": {}}'],
)  # fmt: skip
def test_what_is_no_answer_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "answer.json"
    file.write_text(text)
    found = CliRunner().invoke(app, ["calibrate", "--answer", str(file)])
    assert isinstance(found.exception, UsageError)


@pytest.mark.engine
def test_the_worker_measures_with_a_real_pytorch(onnx_env_python: Path, tmp_path: Path) -> None:
    """On the processor, since tests have no GPU: the numbers mean nothing, their places do."""
    asked = {
        "shapes": [[256, 128]],
        "tokens": [1, 64],
        "formats": ["int3", "bf16"],
        "seconds": 4,
        "device": "cpu",
        "keep": str(tmp_path / "kept.jsonl"),
    }
    environment = worker.variables("onnx", onnx_env_python)
    said = worker.run_job(
        onnx_env_python, "calibrate", asked, lambda *_: None, env=environment, timeout_s=120
    )
    assert [row[:3] for row in said["products"]["bf16"]] == [[1, 256, 128], [64, 256, 128]]
    assert all(row[3] > 0 for row in said["products"]["bf16"])
    assert said["copy_bytes_per_s"] > 0
    assert any("int3" in note for note in said["notes"])
    kept = tmp_path / "kept.jsonl"
    kept.write_text(kept.read_text() + '{"device": "cpu", "name": "bf1')
    again = worker.run_job(
        onnx_env_python, "calibrate", asked, lambda *_: None, env=environment, timeout_s=120
    )
    assert again["products"] == said["products"], "what was kept is not measured again"
    assert again["copy_bytes_per_s"] == said["copy_bytes_per_s"]


@pytest.mark.engine
def test_without_a_gpu_the_worker_says_what_to_name(onnx_env_python: Path) -> None:
    environment = worker.variables("onnx", onnx_env_python)
    asked = {"shapes": [[256, 128]], "tokens": [1], "formats": ["bf16"], "seconds": 1}
    with pytest.raises(HostError) as error:
        worker.run_job(onnx_env_python, "calibrate", asked, lambda *_: None, env=environment, timeout_s=120)
    assert "--python" in error.value.hint[0]


def test_texts_in_batches_take_what_a_pooling_runner_took_on_an_h200() -> None:
    """Batches of 8 and 32 texts, measured in one process in two sittings; a batch of 1 in the first gave what a
    layer costs the host."""
    evidence = Path(__file__).parents[2] / "evidence"
    files = ("convert/embed-table-h200-2026-11-30.json", "convert/embed-fp8-h200-2026-11-30.json")
    answer = json.loads((evidence / "speed-model/calibrate-h200.json").read_text())
    found = room.calibration(answer, gpus.find("h200"), date="2026-11-30")
    name, seen = "Qwen/Qwen3-Embedding-0.6B", 0
    for row in (r for file in files for r in json.loads((evidence / file).read_text())["rows"]):
        if not row["way"].startswith("vllm") or "latency_ms" not in row or row["batch"] == 1:
            continue
        number = "fp8" if row["way"] == "vllm-fp8" else "bf16"
        steps = roofline(setup("h200", number, name, version="0.25.1"), calibration=found)
        said = steps.prefill_ms(512, sequences=row["batch"])
        assert said == pytest.approx(row["latency_ms"]["p50"], rel=0.25), row
        seen += 1
    assert seen == 6


def test_a_pooling_runner_pays_for_its_layers_whatever_the_batch() -> None:
    name = "Qwen/Qwen3-Embedding-0.6B"
    few = roofline(setup("h100", name=name)).prefill_ms(8)
    assert few > 28 * 0.2, "no graph covers a whole step"
    assert roofline(setup("h100", name="Qwen/Qwen3-0.6B")).prefill_ms(8) < 0.6 * few

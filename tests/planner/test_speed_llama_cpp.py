"""llama.cpp: what three cards were measured at, and how layers in host memory slow it."""

import csv
import math
from dataclasses import replace
from pathlib import Path
from statistics import median

import pytest

from model_optimizer.core import GgufModel, UsageError
from model_optimizer.core.steps import Batch
from model_optimizer.facts import gpus
from model_optimizer.planner.memory import llama_cpp as memory
from model_optimizer.planner.speed import llama_cpp
from model_optimizer.planner.speed.llama_cpp import LlamaSteps
from model_optimizer.system import models

ROWS = Path(__file__).parents[2] / "evidence/speed-model/llama-cpp.csv"
WIDTH = {"Q4_0": 4.5, "Q4_1": 5.0, "Q6_K": 6.5625, "F16": 16.0}
EIGHT = "meta-llama/Meta-Llama-3.1-8B"
MODELS = {"llama 8B": EIGHT, "llama 7B": "meta-llama/Llama-2-7b-hf", "Qwen3 4B": "Qwen/Qwen3-4B"}


def file_of(name: str, number: str) -> GgufModel:
    whole = memory.from_spec(models.read(name), None)
    share = WIDTH[number] / 16
    head = whole.output_bytes if number == "F16" else round(whole.output_bytes * WIDTH["Q6_K"] / 16)
    layers = tuple(round(b * share) for b in whole.layers)
    return replace(whole, layers=layers, output_bytes=head, format=number)


def steps(gpu: str = "rtx 3090", *, layers: int = 99, number: str = "Q4_0", name: str = EIGHT) -> LlamaSteps:
    return llama_cpp.steps(file_of(name, number), models.read(name), gpus.find(gpu), layers=layers)


def test_rows_of_llama_bench() -> None:
    errors: dict[str, list[float]] = {"MI50": []}
    for row in csv.DictReader(ROWS.read_text().splitlines()):
        name = MODELS[row["model"]]
        model = steps(row["gpu"], number=row["format"], name=name)
        count, depth = int(row["micro_batch"]), int(row["depth"])
        prompt = int(row["test"][2:].partition("@")[0])
        whole = Batch(tokens=count, chunks=1, pairs=count * (depth + prompt / 2))
        ms = model.decode_ms(1, depth + prompt / 2) if count == 1 else model.mixed_ms(whole)
        error = abs(math.log(count / ms * 1e3 / float(row["tokens_per_s"])))
        errors.setdefault("MI50" if row["gpu"] == "MI50" else "NVIDIA", []).append(error)
    assert [len(errors[name]) for name in ("NVIDIA", "MI50")] == [17, 10]
    assert median(errors["NVIDIA"]) < 0.13 and median(errors["MI50"]) < 0.2
    assert max(errors["NVIDIA"]) < 0.35 and max(errors["MI50"]) < 0.4


def test_a_layer_in_host_memory_costs_more_than_one_on_the_gpu() -> None:
    times = [steps(layers=n).decode_ms(1, 512) for n in (33, 32, 24, 16, 0)]
    assert times == sorted(times)
    assert times[-1] > 5 * times[0]
    assert steps(layers=16).explain(Batch(sequences=1, context=512)).bound == "host memory"


def test_long_prompts_copy_host_layers_to_the_gpu() -> None:
    """Copying 2 GB once beats computing 512 tokens on the CPU."""
    found = steps(layers=16).explain(Batch(tokens=512, chunks=1, pairs=512 * 256))
    assert found.parts["PCIe"] > 0
    assert found.parts["host memory"] < 30, "what is left for the CPU is the head"


def test_experts_that_are_not_visited_are_not_read() -> None:
    name = "Qwen/Qwen3-30B-A3B"
    one = steps("h100", name=name)
    assert one.decode_ms(1, 100) < 0.3 * one.decode_ms(64, 100)


@pytest.mark.parametrize(("name", "width"), [("Q4_K_M", 4.7), ("IQ3_XS", 3.7), ("F16", 16), ("BF16", 16)])
def test_formats_have_their_width(name: str, width: float) -> None:
    assert llama_cpp.bits(name) == width


def test_a_card_without_a_known_peak_goes_by_its_cores() -> None:
    bare = replace(gpus.find("gtx 1070"), dense_tflops=gpus.DenseTflops())
    found = llama_cpp.steps(file_of(EIGHT, "Q4_0"), models.read(EIGHT), bare, layers=99)
    assert 15 < found.decode_ms(1, 100) < 60
    assert "assumed clock" in found.provenance
    assert "assumed" not in steps("gtx 1070").provenance


def test_a_card_of_which_nothing_is_known_is_refused() -> None:
    bare = replace(gpus.find("gtx 1070"), cuda_cores=None, dense_tflops=gpus.DenseTflops())
    with pytest.raises(UsageError, match="no speed is known"):
        llama_cpp.steps(file_of(EIGHT, "Q4_0"), models.read(EIGHT), bare, layers=1)

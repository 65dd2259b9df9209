"""`mopt calibrate`: micro-benchmarks of a GPU, and the constants that follow from them."""

from collections.abc import Callable, Mapping
from typing import Any, cast

from model_optimizer.core import ModelSpec, Progress, ToolError, UsageError
from model_optimizer.core.calibration import Calibration, KernelRates
from model_optimizer.facts import speed
from model_optimizer.facts.gpus import GpuFact
from model_optimizer.planner.speed import calibrated
from model_optimizer.planner.speed.calibrated import Timing

Run = Callable[[Mapping[str, Any], Progress], Mapping[str, Any]]
"""(request, progress) -> what workers/calibrate.py answers."""


def request(model: ModelSpec, seconds: float, device: str = "cuda") -> dict[str, object]:
    """What to measure: the model's own products, in the formats that have kernels everywhere."""
    return {
        "shapes": [list(shape) for shape in calibrated.shapes(model)],
        "tokens": list(calibrated.TOKENS),
        "formats": ["bf16", "fp8"],
        "seconds": seconds,
        "device": device,
    }


def check(answer: Mapping[str, Any]) -> None:
    """UsageError when this is no answer of the script, or one of a processor."""
    rows = answer.get("products")
    whole = isinstance(rows, dict) and all(
        isinstance(row, list) and len(cast("list[object]", row)) == 4
        and all(isinstance(n, int | float) and n > 0 for n in cast("list[object]", row))
        for group in cast("dict[str, list[object]]", rows).values()
        for row in group
    )  # fmt: skip
    if not whole or not isinstance(answer.get("device"), str) or not isinstance(answer.get("torch"), str):
        raise UsageError(
            "this is no answer of the calibration script",
            cause=("`device`, `torch` and `products` {format: [[tokens, outputs, inputs, seconds], ...]}",),
            hint=("pass the result.json that `calibrate.py request.json result.json` wrote",),
        )
    if answer["device"] == "cpu":
        raise UsageError("this was measured on a processor", hint=("run the script where the GPU is",))


def calibration(answer: Mapping[str, Any], gpu: GpuFact, *, date: str) -> Calibration:
    """The constants of a GPU from the answer of the worker. ToolError when nothing could be measured."""
    kernels = speed.generation(gpu.compute_capability or (0, 0))
    found: dict[str, KernelRates] = {}
    products = cast("Mapping[str, list[list[float]]]", answer.get("products", {}))
    for number, rows in products.items():
        start = kernels.gemm.get(number, kernels.gemm["bf16"])
        rates = calibrated.fit([Timing(*row) for row in rows], number, gpu, start)
        if rates is not None:
            found[number] = rates
    if not found:
        raise ToolError(
            "no matrix product could be measured",
            cause=tuple(cast("list[str]", answer.get("notes", [])))[:3],
        )
    return Calibration(
        gpu=gpu.name,
        device=str(answer["device"]),
        kernels=found,
        copy_bytes_per_s=answer.get("copy_bytes_per_s"),
        graph_launch_us=answer.get("graph_launch_us"),
        eager_launch_us=answer.get("eager_launch_us"),
        round_trip_us=answer.get("round_trip_us"),
        sustained=answer.get("sustained"),
        torch=str(answer["torch"]),
        date=date,
        notes=tuple(cast("list[str]", answer.get("notes", []))),
    )

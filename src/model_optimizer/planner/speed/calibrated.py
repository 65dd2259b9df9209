"""Constants of a GPU's kernels from its own micro-benchmarks, in the place of those of its generation."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import log
from statistics import median

from model_optimizer.core import ModelSpec
from model_optimizer.core.calibration import Calibration, KernelRates
from model_optimizer.facts.gpus import GpuFact
from model_optimizer.facts.speed import Generation, Kernel, Overhead, Shared

from .products import products

TOKENS = (1, 8, 32, 64, 128, 256, 512, 1024, 2048, 4096)
MOST_SHAPES = 5
FEWEST = 8
BYTES = {"bf16": 2, "fp8": 1}


@dataclass(frozen=True, slots=True)
class Timing:
    """One product that was measured: tokens x inputs by inputs x outputs, in seconds."""

    tokens: float
    outputs: float
    inputs: float
    seconds: float


def shapes(model: ModelSpec) -> tuple[tuple[int, int], ...]:
    """(outputs, inputs) of the model's largest products, in multiples of 16 that every format takes."""
    found = {(p.outputs, p.inputs): p.copies * p.parameters for p in products(model).dense}
    even = [s for s in found if s[0] % 16 == 0 and s[1] % 16 == 0]
    return tuple(sorted(even, key=lambda s: -found[s])[:MOST_SHAPES])


def fit(timings: Sequence[Timing], number: str, gpu: GpuFact, start: Kernel) -> KernelRates | None:
    """The constants that come nearest to what was measured; None when that is too little.

    The blend stays that of the generation; launch, bandwidth and compute are found by shrinking steps.
    """
    peak = gpu.peak_per_s("fp8" if number == "fp8" else "bf16")
    if len(timings) < FEWEST or peak is None:
        return None
    size = BYTES[number]
    work = [
        (
            (t.outputs * t.inputs * size + t.tokens * (t.inputs * size + t.outputs * 2))
            / gpu.bandwidth_bytes_per_s,
            2 * t.tokens * t.outputs * t.inputs / peak,
            t.seconds,
        )
        for t in timings
    ]

    def error(place: tuple[float, float, float]) -> float:
        launch, bandwidth, compute = place
        q = start.blend
        return sum(
            abs(log((launch + ((m / bandwidth) ** q + (c / compute) ** q) ** (1 / q)) / seconds))
            for m, c, seconds in work
        )

    best = _descend(error, (start.launch_us * 1e-6, start.bandwidth, start.compute))
    launch, bandwidth, compute = best
    q = start.blend
    sizes = [
        abs(log((launch + ((m / bandwidth) ** q + (c / compute) ** q) ** (1 / q)) / seconds))
        for m, c, seconds in work
    ]
    return KernelRates(
        launch_us=launch * 1e6,
        bandwidth=bandwidth,
        compute=compute,
        blend=q,
        points=len(work),
        error=median(sizes),
    )


def _descend(
    error: Callable[[tuple[float, float, float]], float], place: tuple[float, float, float]
) -> tuple[float, float, float]:
    """One constant at a time, with steps that shrink while none of them helps."""
    best, step = error(place), 1.5
    while step > 1.005:
        moved = False
        for axis in range(3):
            for factor in (step, 1 / step):
                values = list(place)
                values[axis] = max(values[axis] * factor, 1e-9)
                trial = (values[0], values[1], values[2])
                found = error(trial)
                if found < best:
                    best, place, moved = found, trial, True
        if not moved:
            step = step**0.5
    return place


def apply(kernels: Generation, calibration: Calibration, shared: Shared) -> Generation:
    """The generation's kernels with the calibrated ones in their place; relief by power no longer applies.

    Products were timed while the GPU worked without a pause, so that what is left under steady load is in
    their rates already, and is taken out of `shared.sustained`.
    """
    gemm = dict(kernels.gemm)
    for number, rates in calibration.kernels.items():
        gemm[number] = Kernel(
            launch_us=rates.launch_us,
            bandwidth=rates.bandwidth,
            compute=rates.compute / shared.sustained,
            blend=rates.blend,
            error=rates.error,
        )
    measured = f"{calibration.device} itself ({calibration.date})"
    return replace(kernels, gemm=gemm, measured_on=measured, watts_per_tflops=0.0, borrowed=None)


def shared(known: Shared, calibration: Calibration, gpu: GpuFact) -> Shared:
    """Elementwise kernels and steady clocks as this machine has them, beside the one of the constants."""
    found = known
    if calibration.sustained is not None:
        found = replace(found, sustained=calibration.sustained)
    if calibration.graph_launch_us is not None:
        slower = calibration.graph_launch_us / known.reference_launch_us
        found = replace(found, pass_us=known.pass_us * slower)
    if calibration.copy_bytes_per_s is not None:
        share = calibration.copy_bytes_per_s / gpu.bandwidth_bytes_per_s
        found = replace(found, pass_bandwidth=known.pass_bandwidth * share / known.reference_copy)
    return found


def host(known: Overhead, calibration: Calibration, shared: Shared, *, pooled: bool = False) -> Overhead:
    """What a layer costs the host where no graph covers a step, by how long one launch takes here.

    A model that is `pooled` shares the host with no sampler and no streams of answers.
    """
    if calibration.eager_launch_us is None:
        return known
    eager = shared.layer_launches * calibration.eager_launch_us
    pieces = (shared.pooled_launches if pooled else shared.piece_launches) * calibration.eager_launch_us
    return replace(known, layer_us=pieces if known.layer_us else 0.0, eager_layer_us=eager)

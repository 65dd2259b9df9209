"""How long a quantization takes and how much of a GPU it holds, before it begins. Measured on two cores."""

from dataclasses import dataclass

from model_optimizer.core import Host, ModelSpec
from model_optimizer.core.paths import Chain

from ._choices import Choices
from ._compressor import vram_bytes
from ._size import quantized_parameters


@dataclass(frozen=True, slots=True, kw_only=True)
class Speed:
    """Seconds: to start on two cores; on one core for each million parameters that are rounded, and for each
    billion products of parameter and calibration token; on any number of them for each layer and sample. The
    last two count once for each step where `searches`."""

    start_s: float
    rounding_s: float
    calibrating_s: float = 0.0
    calling_s: float = 0.0
    searches: bool = False


# Measured 2026-11-30 on two cores of an AMD EPYC (Zen 5) with llm-compressor 0.14 and ModelOpt 0.47, other
# work beside it: tiny-qwen3 (4.1 million parameters quantized) and SmolLM2 (106 million).
SPEEDS = {
    "data_free": Speed(start_s=5, rounding_s=0.16),
    "gptq": Speed(start_s=13, rounding_s=0.9, calibrating_s=0.05, calling_s=0.005),
    "smoothquant": Speed(start_s=13, rounding_s=0.9, calibrating_s=0.05, calling_s=0.005),
    "static_scales": Speed(start_s=13, rounding_s=0.4, calibrating_s=0.05, calling_s=0.005),
    "awq": Speed(start_s=13, rounding_s=0.2, calibrating_s=0.02, calling_s=0.018, searches=True),
    "auto_quantize": Speed(start_s=13, rounding_s=0.2, calibrating_s=0.3, calling_s=0.1),
}
SPREAD = 2.5
"""Factor of the interval, both ways: another processor, other work beside."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """`seconds` is an interval; None where it is not known. `vram_bytes` None where no GPU takes part."""

    seconds: tuple[float, float] | None = None
    vram_bytes: int | None = None
    notes: tuple[str, ...] = ()


def effort(chain: Chain, model: ModelSpec, choices: Choices, host: Host) -> Effort:
    """Of a chain with a quantizer in it that was measured; a conversion before it is not counted."""
    speed = next((SPEEDS[hop.tool] for hop in chain if hop.tool in SPEEDS), None)
    if speed is None:
        return Effort()
    calibrated = speed.calibrating_s > 0
    if calibrated and host.gpus:
        return Effort(
            vram_bytes=vram_bytes(model, choices),
            notes=("on a GPU, if the torch of the environment has CUDA; how long was not measured",),
        )
    cores = max(1, host.cpu.cores or 1)
    parameters = quantized_parameters(model)
    steps = choices.search_steps if speed.searches else 1
    products = parameters * choices.calibration.tokens / 1e9 if calibrated else 0.0
    alone = speed.rounding_s * parameters / 1e6 + speed.calibrating_s * products * steps
    calls = model.layers * choices.calibration.count * steps
    seconds = speed.start_s * 2 / min(cores, 2) + alone / cores + speed.calling_s * calls
    notes = ("on the CPU, which takes many times longer than a GPU",) if calibrated else ()
    return Effort(seconds=(seconds / SPREAD, seconds * SPREAD), notes=notes)

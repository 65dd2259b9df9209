"""What it costs that GPUs add up their parts of a layer or exchange tokens, over NVLink or PCIe."""

from dataclasses import dataclass

from model_optimizer.facts import speed
from model_optimizer.facts.gpus import GpuFact
from model_optimizer.facts.speed import AllReduce, Generation

from .setup import Setup

# Bytes a second of one PCIe lane in one direction, by generation (PCI-SIG: 8, 16, 32 GT/s, 128b/130b).
LANES = {"3": 0.985e9, "4": 1.969e9, "5": 3.938e9}


def all_reduces(setup: Setup, kernels: Generation) -> tuple[int, float, float]:
    """(all-reduces a step, seconds to start one, seconds a token)."""
    count = setup.tensor_parallel
    if count == 1:
        return 0, 0.0, 0.0
    link, rows = _link(setup.gpu, kernels)
    found = _nearest(rows, count)
    hops = 2 * (count - 1) / count
    token = setup.model.hidden_size * 2 * hops / (link * found.bandwidth)
    return 2 * setup.model.layers, found.launch_us * 1e-6, token


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """Bytes over one GPU's link in each direction for each of its own tokens, in one layer of experts:
    on the way to the experts, and back."""

    dispatched: float
    combined: float

    @property
    def bytes(self) -> float:
        return self.dispatched + self.combined


def gathered(hidden: int, ranks: int) -> Exchange:
    """Every engine gets the tokens of all others, and sends back its part of their sums: 16 bits both ways.

    It is vLLM's default from 0.11 on (`--all2all-backend allgather_reducescatter`), whatever the router
    chose; both together move what one all-reduce over the tokens of all engines would.
    """
    one = (ranks - 1) * hidden * 2.0
    return Exchange(dispatched=one, combined=one)


def routed(hidden: int, ranks: int, active: int, *, number_bytes: float = 2.0) -> Exchange:
    """A token goes only to the GPUs of its `active` experts (DeepEP), which spread evenly; a GPU that holds
    several of them gets it once. `number_bytes` of the way there are 1 where it is quantized to FP8."""
    elsewhere = (ranks - 1) * (1 - (1 - 1 / ranks) ** active)
    return Exchange(dispatched=elsewhere * hidden * number_bytes, combined=elsewhere * hidden * 2.0)


def exchanges(setup: Setup, ranks: int, kernels: Generation) -> tuple[float, float]:
    """(seconds to start, seconds a token of its own) of one layer's exchange between `ranks` engines."""
    link, rows = _link(setup.gpu, kernels)
    found = _nearest(rows, ranks)
    moved = gathered(setup.model.hidden_size, ranks).bytes
    return found.launch_us * 1e-6, moved / (link * found.bandwidth)


def _link(gpu: GpuFact, kernels: Generation) -> tuple[float, dict[str, AllReduce]]:
    """Bytes a second in one direction, and the constants of that kind of link."""
    if gpu.nvlink_bytes_per_s:
        rows = kernels.all_reduce if kernels.generation != "ada" else speed.generation((8, 0)).all_reduce
        return gpu.nvlink_bytes_per_s / 2, dict(rows)
    generation, _, lanes = (gpu.pcie or "4.0 x16").partition(" x")
    # Two machines were measured, and what a bus gives depends on how one is built: the middle of both.
    one, other = speed.generation((8, 9)).all_reduce, speed.generation((12, 0)).all_reduce
    rows = {n: _middle(one[n], other[n]) for n in one if n in other}
    return LANES.get(generation[:1], LANES["4"]) * int(lanes), rows


def _middle(one: AllReduce, other: AllReduce) -> AllReduce:
    """The geometric mean of two machines."""
    return AllReduce(
        launch_us=(one.launch_us * other.launch_us) ** 0.5,
        bandwidth=(one.bandwidth * other.bandwidth) ** 0.5,
    )


def _nearest(rows: dict[str, AllReduce], count: int) -> AllReduce:
    return rows[min(rows, key=lambda n: abs(int(n) - count))]

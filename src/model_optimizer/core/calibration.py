"""What micro-benchmarks found on one GPU: the rates that replace those of a datasheet."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelRates:
    """Matrix products of one number format, as facts.speed.Kernel has them: shares of the GPU's peaks.

    `error` is the median of |log(fitted / measured)| over `points` products.
    """

    launch_us: float
    bandwidth: float
    compute: float
    blend: float
    points: int
    error: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """One run of `mopt calibrate`. `gpu` is the full name in the facts.

    `copy_bytes_per_s` counts what is read and what is written. `graph_launch_us` is one small kernel inside
    a CUDA graph, `eager_launch_us` without, `round_trip_us` with its number read by the host; `sustained` is
    the rate of a large product after seconds of work, as a share of that after a pause. None where it could
    not be measured.
    """

    gpu: str
    device: str
    kernels: Mapping[str, KernelRates] = field(default_factory=dict[str, KernelRates])
    copy_bytes_per_s: float | None = None
    graph_launch_us: float | None = None
    eager_launch_us: float | None = None
    round_trip_us: float | None = None
    sustained: float | None = None
    torch: str
    date: str
    notes: tuple[str, ...] = ()

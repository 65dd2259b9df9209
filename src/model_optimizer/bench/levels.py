"""From what is asked to the levels that are driven, one after the other."""

import math
from dataclasses import replace

from model_optimizer.core import UsageError, Workload

from .arrivals import Ramp
from .level import Level
from .options import BenchOptions
from .trace import Trace

_WARMUP_S = 2.0
_OPEN_LOOP_S = 30.0


def levels(
    workload: Workload, options: BenchOptions, seed: int, trace: Trace | None = None
) -> tuple[Level, ...]:
    """What a workload and its options ask for, level by level. Raises UsageError."""
    if workload.arrivals == "trace":
        return (_replayed(workload, options, seed, trace),)
    is_open = workload.arrivals != "closed"
    own = workload.qps if is_open else workload.concurrency
    values = options.levels or ((own,) if own is not None else ())
    if workload.arrivals == "burst" or values == (math.inf,):
        return (_burst(workload, options, seed),)
    if not values:
        wanted = "a rate (--qps)" if is_open else "a concurrency (--concurrency)"
        raise UsageError(f"the load needs {wanted}")
    if any(not value > 0 or math.isinf(value) for value in values):
        raise UsageError("a level of load must be a number above zero")
    if is_open:
        return tuple(opened(workload, options, seed, qps) for qps in values)
    return tuple(closed(workload, options, seed, int(concurrency)) for concurrency in values)


def closed(workload: Workload, options: BenchOptions, seed: int, concurrency: int) -> Level:
    requests = workload.requests or (None if options.duration_s else max(32, 8 * concurrency))
    level = Level(title=f"concurrency {concurrency}", arrivals="closed", concurrency=concurrency)
    warmup = concurrency if options.warmup is None else options.warmup
    return _complete(level, options, seed, requests, warmup)


def opened(workload: Workload, options: BenchOptions, seed: int, qps: float) -> Level:
    requests = workload.requests or (None if options.duration_s else math.ceil(_OPEN_LOOP_S * qps))
    count = requests if requests is not None else math.ceil(qps * (options.duration_s or 0))
    shape = f" {workload.burstiness:g}" if workload.arrivals == "gamma" else ""
    ramp = _ramp(workload, options)
    rate = f"{qps:g}" if ramp is None else f"{qps:g} to {ramp.to_qps:g}"
    level = Level(
        title=f"{rate} requests/s {workload.arrivals}{shape}",
        arrivals=workload.arrivals,
        qps=qps,
        burstiness=workload.burstiness,
        ramp=ramp,
    )
    if ramp is not None:
        return _complete(level, options, seed, workload.requests, options.warmup or 0)
    warmup = max(1, min(round(_WARMUP_S * qps), count // 4)) if options.warmup is None else options.warmup
    return _complete(level, options, seed, requests, warmup)


def _burst(workload: Workload, options: BenchOptions, seed: int) -> Level:
    if workload.requests is None:
        raise UsageError("a burst needs a number of requests", hint=("add --requests N",))
    level = Level(title=f"burst of {workload.requests} requests", arrivals="burst", qps=math.inf)
    return _complete(level, replace(options, duration_s=None), seed, workload.requests, 0)


def _ramp(workload: Workload, options: BenchOptions) -> Ramp | None:
    if workload.ramp_to_qps is None:
        return None
    seconds = workload.ramp_s or options.duration_s
    if not seconds:
        raise UsageError("a ramp needs a time", hint=("add --for TIME, or --ramp-time TIME",))
    return Ramp(to_qps=workload.ramp_to_qps, seconds=seconds)


def _replayed(workload: Workload, options: BenchOptions, seed: int, trace: Trace | None) -> Level:
    if trace is None:
        raise UsageError("arrivals of a trace need the trace", hint=("add --trace FILE",))
    offsets = tuple(entry.offset_ns for entry in trace.entries)
    level = Level(title=f"trace {workload.trace or trace.name}", arrivals="trace", offsets_ns=offsets)
    return _complete(replace(level), options, seed, None, options.warmup or 0)


def _complete(
    level: Level,
    options: BenchOptions,
    seed: int,
    requests: int | None,
    warmup: int,
) -> Level:
    return replace(
        level,
        requests=requests,
        duration_s=options.duration_s,
        warmup=warmup,
        seed=seed,
        timeout_s=options.timeout_s,
        keep_bytes=options.keep_bytes,
    )

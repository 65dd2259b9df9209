"""Measure a running server: `measure` is what other parts of the product call."""

import asyncio
import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from model_optimizer.core import LoadPoint, Measurement, MoptError, Progress, Slo, UsageError, Workload

from . import answers
from .exchange import Exchange, Outcome
from .health import worst
from .load import Driver, Level
from .options import BenchOptions
from .pool import Pool
from .request import Prepared
from .sampler import Reader, Sampler
from .scout import Found, Scout
from .summary import DEFINITIONS, Judged, load_point
from .target import GENERATES, Target, address, api_key

_WARMUP_S = 2.0
_OPEN_LOOP_S = 30.0


def measure(
    target: Target,
    workload: Workload,
    slo: Slo,
    *,
    progress: Progress,
    sample_memory: Reader | None = None,
    energy: Reader | None = None,
    seed: int = 0,
    options: BenchOptions | None = None,
) -> Measurement:
    """Load a server and say how it did, one point a level.

    `sample_memory` reads bytes that the server holds now, `energy` joules used so far; both may carry an
    attribute `source`. They are called from a thread of their own, memory twice a second, energy ten times.

    Raises HostError when the server cannot be reached, MoptError when no request completed, UsageError
    when the request makes no sense. Ctrl-C during the load ends it: what was measured by then comes back,
    marked `interrupted`.
    """
    options = options or BenchOptions()
    plan = levels(workload, options, seed)
    job = _Job(target=target, workload=workload, slo=slo, options=options, seed=seed)
    _allow_many_sockets()
    with asyncio.Runner() as runner:
        return runner.run(_measure(job, plan, progress, (sample_memory, energy)))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Job:
    target: Target
    workload: Workload
    slo: Slo
    options: BenchOptions
    seed: int


async def _measure(
    job: _Job, plan: Sequence[Level], progress: Progress, readers: tuple[Reader | None, Reader | None]
) -> Measurement:
    where, key = address(job.target.url), api_key(job.target)
    pool = Pool(where, limit=job.options.answer_limit_bytes, connect_timeout_s=job.options.connect_timeout_s)
    started = datetime.now(UTC).isoformat(timespec="seconds")
    points: list[LoadPoint] = []
    try:
        progress(f"asking {where.origin}", None)
        found = await Scout(pool, where, key, job.options, job.seed).look(job.target, job.workload)
        for number, level in enumerate(plan):

            def make(index: int, number: int = number) -> Prepared:
                return found.writer.make(found.manner, number, index)

            def read(exchange: Exchange) -> Outcome:
                return answers.read(exchange, found.manner.api, secret=key)

            text = f"measuring {level.title}"
            progress(f"preparing {level.title}", None)
            with Sampler(*readers) as sampler:
                driver = Driver(level, pool, make=make, read=read, progress=_share_of(progress, text))
                driven = await driver.run()
            judged = Judged(
                slo=job.slo,
                generates=found.manner.api in GENERATES,
                sampled=sampler.sampled(),
                ceiling_requests_per_s=job.options.ceiling_requests_per_s,
            )
            points.append(load_point(driven, judged))
            if driven.interrupted:
                break
    finally:
        pool.close()
        await asyncio.sleep(0)  # let the transports close
    _require_one(points, where.origin)
    return _measurement(job, points, found, started, where.origin)


def _share_of(progress: Progress, text: str) -> Callable[[float], None]:
    return lambda share: progress(text, share)


def _measurement(job: _Job, points: Sequence[LoadPoint], found: Found, started: str, url: str) -> Measurement:
    last = points[-1]
    return Measurement(
        points=tuple(points),
        client=worst(tuple(point.client for point in points)),
        telemetry={"energy": last.energy_source, "memory": last.memory_source or "not measurable here"},
        definitions=DEFINITIONS,
        vllm_bench=last.vllm_bench,
        url=url,
        model=found.manner.model,
        api=found.manner.api,
        workload=job.workload,
        slo=job.slo,
        seed=job.seed,
        started=started,
        notes=found.notes,
        interrupted=any(point.interrupted for point in points),
    )


def _require_one(points: Sequence[LoadPoint], origin: str) -> None:
    """A load in which nothing completed is an answer, and the answer is no."""
    if any(point.completed or point.interrupted for point in points):
        return
    causes: list[str] = []
    for point in points:
        for kind, count in point.errors.items():
            causes.append(f"{point.target}: {count} x {kind}, for example: {point.error_examples.get(kind)}")
        causes += point.notes
    raise MoptError(f"no request to {origin} completed", cause=tuple(causes), reference="nothing-completed")


def levels(workload: Workload, options: BenchOptions, seed: int) -> tuple[Level, ...]:
    """What a workload and its options ask for, level by level. Raises UsageError."""
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
        return tuple(_open(workload, options, seed, qps) for qps in values)
    return tuple(_closed(workload, options, seed, int(concurrency)) for concurrency in values)


def _closed(workload: Workload, options: BenchOptions, seed: int, concurrency: int) -> Level:
    requests = workload.requests or (None if options.duration_s else max(32, 8 * concurrency))
    level = Level(title=f"concurrency {concurrency}", arrivals="closed", concurrency=concurrency)
    warmup = concurrency if options.warmup is None else options.warmup
    return _complete(level, options, seed, requests, warmup)


def _open(workload: Workload, options: BenchOptions, seed: int, qps: float) -> Level:
    requests = workload.requests or (None if options.duration_s else math.ceil(_OPEN_LOOP_S * qps))
    count = requests if requests is not None else math.ceil(qps * (options.duration_s or 0))
    shape = f" {workload.burstiness:g}" if workload.arrivals == "gamma" else ""
    level = Level(
        title=f"{qps:g} requests/s {workload.arrivals}{shape}",
        arrivals=workload.arrivals,
        qps=qps,
        burstiness=workload.burstiness,
    )
    warmup = max(1, min(round(_WARMUP_S * qps), count // 4)) if options.warmup is None else options.warmup
    return _complete(level, options, seed, requests, warmup)


def _burst(workload: Workload, options: BenchOptions, seed: int) -> Level:
    if workload.requests is None:
        raise UsageError("a burst needs a number of requests", hint=("add --requests N",))
    level = Level(title=f"burst of {workload.requests} requests", arrivals="burst", qps=math.inf)
    return _complete(level, replace(options, duration_s=None), seed, workload.requests, 0)


def _complete(level: Level, options: BenchOptions, seed: int, requests: int | None, warmup: int) -> Level:
    return replace(
        level,
        requests=requests,
        duration_s=options.duration_s,
        warmup=warmup,
        seed=seed,
        timeout_s=options.timeout_s,
        keep_bytes=options.keep_bytes,
    )


def _allow_many_sockets() -> None:
    """Raise this process's soft limit of open files to the hard one: each request in flight is one."""
    with suppress(ImportError, ValueError, OSError):
        import resource

        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))

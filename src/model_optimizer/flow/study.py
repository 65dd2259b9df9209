"""One tuning study from what a person asks to the files it leaves: study.json, lock.json, log/, trials.db."""

import dataclasses
import math
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Literal

from model_optimizer.core import (
    Artifact,
    Engine,
    Estimate,
    Fit,
    FitQuestion,
    GpuMemory,
    Host,
    Lengths,
    ModelSpec,
    MoptError,
    Plan,
    Progress,
    Scheme,
    Slo,
    UsageError,
    Workload,
    codec,
    digest,
)
from model_optimizer.core.question import EstimateQuestion
from model_optimizer.core.study import Knob, Objective, Over, Prior, Shape, Study
from model_optimizer.facts import tune as tune_facts
from model_optimizer.serve import Order as ServeOrder
from model_optimizer.serve import Wish, resolve
from model_optimizer.serve.plain import with_settings
from model_optimizer.serve.target import spelled
from model_optimizer.system import files, gpu_memory, models
from model_optimizer.system.runs import RunFolder, open_run
from model_optimizer.tune import Budget, Functions, Order, TuneQuestion
from model_optimizer.tune import tune as search
from model_optimizer.tune.finals import with_rounds
from model_optimizer.tune.objective import Aim
from model_optimizer.tune.space import ENVIRONMENT, SCHEME, knobs
from model_optimizer.tune.turns import Execute

from .kept import FOLDER as SERVERS
from .kept import sweep
from .priors import earlier
from .relock import packages
from .residents import TOGETHER, Residents
from .results import STUDY, study_page
from .sharing import OnCpu, OnGpu, Share, apart
from .tune import Guide, Loads, Runner, Subject, lock_of, one_by_one, subject

LOCK, REQUEST, PREDICTED = "lock.json", "request.json", "predicted.json"
DEFAULT_LEVELS = (1.0, 4.0, 16.0)
DUMMY = "load-format"
ELSEWHERE = "trials run on other machines, where servers do not stand by each other"


@dataclass(frozen=True, slots=True, kw_only=True)
class TuneRequest:
    """What a person asks; it is kept in the study's folder, so that --resume needs no other option.

    `settings` change the default plan itself, `values` are knobs by name, `fixed` are left alone. `together`
    trials at a time have servers that stand by each other, of which `start_together` start at once.
    """

    target: str
    engine: str | None = None
    scheme: str | None = None
    settings: Mapping[str, str] = field(default_factory=dict[str, str])
    values: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    fixed: tuple[str, ...] = ()
    only: tuple[str, ...] = ()
    prompt_tokens: Lengths | None = None
    output_tokens: Lengths | None = None
    levels: tuple[float, ...] = ()
    open_loop: bool = False
    slo: Slo = field(default_factory=Slo)
    objective: Objective = "goodput"
    seconds: float = 6.0
    probe_s: float = 2.5
    trials: int = 12
    limit_s: float | None = None
    finalists: int = 2
    repeats: int = 3
    ablate: int = 2
    seed: int = 0
    storage: str | None = None
    price_per_hour: float | None = None
    python: str | None = None
    start_limit_s: float = 600.0
    workers: str | None = None
    worker_cores: float = 1.0
    shapes: tuple[Shape, ...] = ()
    over: Over = "mean"
    second_look: Literal["auto", "resident", "restart"] = "auto"
    start_together: int = TOGETHER
    together: int = 1
    earlier: str = "studies"


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """What discovery found and the planner offers."""

    engines: Mapping[str, Engine]
    scheme: Callable[[str], Scheme]
    fit: Callable[[FitQuestion], Fit]
    estimate: Callable[[EstimateQuestion], Estimate]
    gpu: Callable[[], GpuMemory | None]
    probe: Callable[[], Host]
    schemes: Mapping[str, object]


def named(below: Path | None, request: TuneRequest, *, now: datetime) -> Path:
    """Where a new study goes; UsageError when something is there. Nothing is written: a request that makes no
    sense leaves no folder."""
    name = "".join(c if c.isalnum() or c in "._-" else "-" for c in Path(request.target).name) or "study"
    folder = below or Path("studies") / f"{now.strftime('%Y%m%dT%H%M%SZ')}-{name}"
    if folder.exists() and any(folder.iterdir()):
        raise UsageError(
            f"`{folder}` is not empty",
            hint=(f"go on with what is there: mopt tune --resume {folder}", "or name another --out"),
        )
    return folder


def create(folder: Path, request: TuneRequest) -> None:
    """The folder of a new study with the request in it."""
    with files.explained(folder):
        (folder / "log").mkdir(parents=True, exist_ok=True)
    files.write_atomic(folder / REQUEST, codec.dumps(request))


def reopen(folder: Path) -> TuneRequest:
    if not (folder / REQUEST).is_file():
        raise UsageError(
            f"`{folder}` holds no study",
            hint=("name the folder that `mopt tune` made, with request.json in it",),
        )
    return codec.load(folder / REQUEST, TuneRequest)


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A study that is ready to run: what `--dry-run` shows."""

    question: TuneQuestion
    study: Study
    runner: Runner
    guide: Guide | None
    host: Host
    model: ModelSpec
    share: Share
    start_together: int = TOGETHER
    together: int = 1

    def residents(self, runner_of: Callable[[Order], Runner] | None = None) -> Residents:
        """Servers of this study that stand by each other."""
        return Residents(
            runner_of=runner_of or (lambda order: self.runner),
            share=self.share,
            progress=self.runner.progress,
            together=self.start_together,
            levels=self.question.levels,
        )


def prepare(request: TuneRequest, folder: Path, room: Room, progress: Progress) -> Prepared:
    """Read the target, choose the knobs, wire the functions. Nothing is started."""
    host = room.probe()
    made, model = _subject(request, host, room)
    engine = room.engines[made.plan.engine]
    request = _in_its_words(request, made.plan, engine)
    work = _workload(request, made.plan)
    loads = Loads(
        workload=work,
        shapes=request.shapes,
        slo=request.slo,
        levels=request.levels or DEFAULT_LEVELS,
        seconds=request.seconds,
        probe_s=request.probe_s,
        vocab_size=model.vocab_size,
        tokenizer=next(iter(made.artifacts.values())).path,
    )
    plan = dataclasses.replace(made.plan, workload=work, slo=request.slo)
    aim = Aim(
        objective=request.objective, slo=request.slo, cost_per_hour=_price(request, plan), over=request.over
    )
    guide = _guide(plan, model, loads, room, request.over, folder / PREDICTED)
    space = _knobs(request, plan, model, loads, made)
    runner = Runner(
        loads=loads,
        aim=aim,
        artifacts=made.artifacts,
        engine=engine,
        logs=folder / "log",
        progress=progress,
        python=Path(request.python) if request.python else None,
        start_limit_s=request.start_limit_s,
        predicted_tokens=guide.kv_cache_tokens if guide else lambda plan: None,
        foreign_bytes=gpu_memory.held if "gpu" in engine.DEVICES else lambda: None,
        records=folder / SERVERS,
    )
    question = TuneQuestion(
        plan=plan,
        knobs=space,
        aim=aim,
        levels=loads.levels,
        plans=made.plans,
        trials=request.trials,
        limit_s=request.limit_s,
        finalists=request.finalists,
        repeats=request.repeats,
        ablate=request.ablate,
        seed=request.seed,
        storage=request.storage,
        priors=(),
        second_look=request.second_look,
    )
    study = Study(
        plan=plan,
        objective=request.objective,
        levels=loads.levels,
        knobs=space,
        combinations=0,
        seed=request.seed,
        started=_now(),
        host_digest=digest.of_noun(host),
        host_name=_machine(host),
        unverified=tuple(name for name in ("quantization", DUMMY) if _tries(name, space, plan)),
        shapes=request.shapes,
        over=request.over,
    )
    priors = earlier(Path(request.earlier), study, own=folder)
    return Prepared(
        question=dataclasses.replace(question, priors=priors),
        study=dataclasses.replace(study, notes=_believed(priors)),
        runner=runner,
        guide=guide,
        host=host,
        model=model,
        share=_share(request, guide, loads, model, host, engine, room),
        start_together=request.start_together,
        together=request.together,
    )


def run(
    prepared: Prepared,
    folder: Path,
    progress: Progress,
    *,
    execute: Execute | None = None,
    workers: int = 1,
    pause_s: float | None = None,
) -> Study:
    """Carry it out, or go on with it; the folder always holds what is known so far.

    `execute` runs trials elsewhere, `workers` at a time. After `pause_s` nothing new is begun.
    """
    guide, residents = prepared.guide, prepared.residents()
    default, begun = prepared.question.plan, time.monotonic()

    def alone(plan: Plan) -> str | None:
        return apart(plan, default) if guide else None

    if execute is None and prepared.together > 1:
        execute, workers, at_once = partial(residents.execute, alone), prepared.together, True
    else:
        at_once = False
    elsewhere = execute is not None and not at_once

    def saved(study: Study) -> None:
        files.write_atomic(folder / STUDY, codec.dumps(study))

    functions = Functions(
        refuse=guide.refuse if guide else lambda plan: None,
        predict=guide.predict if guide else lambda plan: None,
        execute=execute or partial(one_by_one, prepared.runner),
        now=time.monotonic,
        saved=saved,
        workers=workers,
        at_once=at_once,
        share=(lambda orders: ELSEWHERE) if elsewhere else residents.shared,
        apart=alone,
        budget=Budget(
            left=lambda: math.inf if pause_s is None else pause_s - (time.monotonic() - begun),
            now=time.monotonic,
        ),
    )
    with files.locked(folder / ".lock"):
        if left := sweep(folder / SERVERS):
            progress(f"ended {left} servers that an earlier process left behind", None)
        before = _earlier(folder, prepared.study)
        found = search(prepared.question, functions, folder, before, progress)
        if found.paused:
            return found
        found = dataclasses.replace(found, finished=_now())
        saved(found)
        lock = lock_of(
            found,
            prepared.host,
            date=_now(),
            versions=packages(prepared.runner.engine, prepared.runner.python),
        )
        files.write_atomic(folder / LOCK, codec.dumps(lock))
        for kind in ("html", "md"):
            files.write_atomic(folder / f"report.{kind}", study_page(found, kind))
        if found.winner is not None:
            files.write_atomic(folder / "plan.json", codec.dumps(found.winner))
    return found


def _earlier(folder: Path, fresh: Study) -> Study:
    """What an earlier run left, when it is of the same question."""
    path = folder / STUDY
    if not path.is_file():
        return fresh
    try:
        found = codec.load(path, Study)
    except MoptError as error:
        error.hint = (
            f"move `{path}` away and go on: trials are in trials.db, runs of the second look are made again",
        )
        raise
    if [k.name for k in found.knobs] != [k.name for k in fresh.knobs]:
        raise UsageError(
            f"the study in `{folder}` searched other settings",
            hint=(
                "the engine, the run or the facts have changed since: start a new study with another --out",
            ),
        )
    notes = tuple(dict.fromkeys((*fresh.notes, *found.notes)))
    runs = with_rounds(found.final_runs)
    return dataclasses.replace(fresh, notes=notes, started=found.started, final_runs=runs)


def _subject(request: TuneRequest, host: Host, room: Room) -> tuple[Subject, ModelSpec]:
    path = Path(request.target)
    run_folder: RunFolder | None = None
    if path.is_dir() and (path / "run.json").is_file():
        run_folder = open_run(path)
    if request.settings.get(DUMMY) == "dummy":
        made = Subject(plan=(order := _dummy(request)).plan, artifacts={order.plan.scheme: order.artifact})
    else:
        wish = Wish(engine=request.engine, scheme=request.scheme)
        order = resolve(request.target, wish, host, engines=room.engines, schemes=room.schemes)  # pyright: ignore[reportArgumentType]
        made = subject(order, run_folder)
    settings = _in_its_words(request, made.plan, room.engines[made.plan.engine]).settings
    plan = _with(made.plan, settings)
    plans = {name: _with(other, settings) for name, other in made.plans.items()}
    reference = order.artifact.path if run_folder is None else run_folder_model(run_folder, order)
    return dataclasses.replace(made, plan=plan, plans=plans), models.read(reference)


def run_folder_model(run_folder: RunFolder, order: ServeOrder) -> str:
    """The checkpoint that a run began with: artefacts of tools may hold no config.json."""
    found = run_folder.read(ModelSpec, "model")
    return found.path if found is not None and found.path else order.artifact.path


def _dummy(request: TuneRequest) -> ServeOrder:
    """A plan whose weights are random numbers: any published architecture, from its config.json alone."""
    plan = codec.load(Path(request.target), Plan)
    if not Path(plan.checkpoint).is_dir():
        raise UsageError(
            f"`{plan.checkpoint}` is no folder on this machine",
            hint=("random weights still need a folder with config.json and a tokenizer",),
        )
    artifact = Artifact(
        path=plan.checkpoint,
        format="safetensors",
        scheme=plan.scheme,
        task=plan.workload.task,
        bytes=0,
        digest="",
    )
    return ServeOrder(plan=dataclasses.replace(plan, replicas=1, command=()), artifact=artifact)


def _in_its_words(request: TuneRequest, plan: Plan, engine: Engine) -> TuneRequest:
    """The request with the engine's own names. UsageError for what it is never handed: every trial of that
    would measure the same."""
    known = tune_facts.knobs(plan.engine) if plan.engine in tune_facts.engines() else ()
    takes: frozenset[str] = getattr(engine, "TAKES", frozenset())
    takes |= frozenset(knob.name for knob in known if takes)

    def name(text: str) -> str:
        free = text == SCHEME or text.startswith(ENVIRONMENT)
        return text if free else spelled(text, plan, takes)

    return dataclasses.replace(
        request,
        settings={name(n): value for n, value in request.settings.items()},
        values={name(n): values for n, values in request.values.items()},
        only=tuple(map(name, request.only)),
        fixed=tuple(map(name, request.fixed)),
    )


def _with(plan: Plan, settings: Mapping[str, str]) -> Plan:
    """The plan with settings of a user; `env:NAME` is an environment variable."""
    env = {n.removeprefix(ENVIRONMENT): v for n, v in settings.items() if n.startswith(ENVIRONMENT)}
    others = {name: value for name, value in settings.items() if not name.startswith(ENVIRONMENT)}
    return dataclasses.replace(with_settings(plan, others), env={**plan.env, **env})


def _workload(request: TuneRequest, plan: Plan) -> Workload:
    """The plan's own load where nothing else is said."""
    work = plan.workload
    levels = request.levels or DEFAULT_LEVELS
    return Workload(
        task=work.task,
        arrivals="poisson" if request.open_loop else "closed",
        qps=levels[0] if request.open_loop else None,
        concurrency=None if request.open_loop else int(max(levels)),
        prompt_tokens=request.prompt_tokens or work.prompt_tokens,
        output_tokens=request.output_tokens or work.output_tokens,
        shared_prefix=work.shared_prefix,
    )


def _price(request: TuneRequest, plan: Plan) -> float | None:
    if request.price_per_hour is None and request.objective == "cost":
        raise UsageError("the objective `cost` needs a price", hint=("add --price-per-hour 2.50, per GPU",))
    return request.price_per_hour * max(plan.gpus, 1) if request.price_per_hour is not None else None


def _believed(priors: Sequence[Prior]) -> tuple[str, ...]:
    """Which earlier studies lead this one."""
    counts = Counter(prior.study for prior in priors)
    names = ", ".join(f"{name} ({count})" for name, count in sorted(counts.items()))
    if not names:
        return ()
    return (f"settings measured by earlier studies, believed as far as trials bear them out: {names}",)


def _share(
    request: TuneRequest,
    guide: Guide | None,
    loads: Loads,
    model: ModelSpec,
    host: Host,
    engine: Engine,
    room: Room,
) -> Share:
    """How servers of this engine share what memory there is."""
    gpu = room.gpu() if guide else None
    if guide is not None and gpu is not None:
        return OnGpu(guide=guide, loads=loads, total_bytes=gpu.total_bytes)
    if "gpu" in engine.DEVICES and host.gpus:
        return lambda plans, levels: f"how servers of {engine.TITLE} share a GPU is not known here"
    return OnCpu(engine=engine, model=model, host=host, scheme=room.scheme, loads=loads)


def _guide(plan: Plan, model: ModelSpec, loads: Loads, room: Room, over: Over, kept: Path) -> Guide | None:
    """Only for vLLM on a GPU: memory and speed of other engines are not modelled."""
    gpu = room.gpu() if plan.engine == "vllm" else None
    if gpu is None:
        return None
    return Guide(
        model,
        gpu,
        loads,
        fit=room.fit,
        estimate=room.estimate,
        scheme=room.scheme,
        over=over,
        default=plan,
        kept=kept,
    )


def _knobs(
    request: TuneRequest, plan: Plan, model: ModelSpec, loads: Loads, made: Subject
) -> tuple[Knob, ...]:
    facts = tune_facts.knobs(plan.engine) if plan.engine in tune_facts.engines() or not request.values else ()
    if request.only:
        facts = tuple(f for f in facts if f.name in request.only)
    found = knobs(
        facts,
        plan,
        model,
        clients=loads.clients,
        wanted=request.values,
        fixed=(*request.fixed, *request.settings),
        schemes=tuple(made.plans),
    )
    if not found:
        raise UsageError(
            "nothing is left to be tuned", hint=("name values yourself: --knob max-num-seqs=32,64,128",)
        )
    return found


def _tries(name: str, space: Sequence[Knob], plan: Plan) -> bool:
    return any(knob.name == name for knob in space) or plan.setting(name) is not None


def _machine(host: Host) -> str:
    return ", ".join(gpu.name for gpu in host.gpus) if host.gpus else (host.cpu.name or "CPU")


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")

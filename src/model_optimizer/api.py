"""The public Python API: finds the plug-ins, then hands stages what they need. At most 25 names.

Everything that the command line does is a call of this module.
"""

import dataclasses
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from model_optimizer.core import (
    Artifact,
    Finding,
    Gate,
    Host,
    HostError,
    Lengths,
    ModelSpec,
    MoptError,
    Narrowed,
    Plan,
    Progress,
    Record,
    Run,
    Slo,
    UsageError,
    Verdict,
    Workload,
    codec,
    paths,
    plugins,
)
from model_optimizer.core.paths import Order, Work

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from model_optimizer.core import Engine, Estimate, Fit, FitQuestion, GpuMemory, ReadModel, Scheme, Tool
    from model_optimizer.core.calibration import Calibration
    from model_optimizer.core.diagnosis import Diagnosis
    from model_optimizer.core.ledger import LedgerRow
    from model_optimizer.core.question import EstimateQuestion
    from model_optimizer.core.study import Study
    from model_optimizer.flow.plan import PlanRequest
    from model_optimizer.flow.quality import Wishes
    from model_optimizer.flow.study import Prepared, Room, TuneRequest
    from model_optimizer.flow.verify import Case
    from model_optimizer.flow.verify import Desk as VerifyDesk
    from model_optimizer.flow.verify_inside import Inside
    from model_optimizer.flow.wiring import Choices, Wiring
    from model_optimizer.planner import Options
    from model_optimizer.planner.estimate import Desk
    from model_optimizer.quantize.run import Asked, Quantization
    from model_optimizer.system.runs import RunFolder
    from model_optimizer.tune import Order as TuneOrder
    from model_optimizer.tune import Outcome
    from model_optimizer.tune.ab import SideBySide
    from model_optimizer.verify import Endpoint
    from model_optimizer.verify.texts import Texts

__all__ = [
    "Optimization", "calibrate", "candidates", "diagnose", "diagnose_command", "doctor", "estimate",
    "explained", "fit", "gpu_memory", "load_host", "make", "optimize", "plan", "plan_making",
    "plan_quantization", "probe", "quantize", "read_model", "resume", "save", "scheme", "side_by_side",
    "tune", "tuning", "verify",
]  # fmt: skip


def probe(*, ask_hub: bool = False) -> Host:
    """What this machine looks like now; see core.Host. `ask_hub` also tries to reach the model hub."""
    from model_optimizer.system import probe as system_probe

    return system_probe.probe(ask_hub=ask_hub)


def load_host(path: Path) -> Host:
    """A host that was saved. Raises UsageError when the file does not hold one."""
    return codec.load(path, Host)


def save(noun: object, path: Path) -> None:
    """Write a noun as JSON, whole or not at all. Raises HostError when that is not possible."""
    from model_optimizer.system import files

    files.write_atomic(path, codec.dumps(noun))


def doctor(host: Host, target: str | None = None) -> "Sequence[Finding]":
    """One finding a check, layer by layer. `target` is what shall run here: an image, a package with its
    version, or the path of a Dockerfile (UsageError when it is none of them)."""
    from model_optimizer.doctor import examine, read_target

    aim = None if target is None else read_target(target)
    return examine(host, plugins.load_all("model_optimizer.doctor.checks"), aim)


def read_model(reference: str) -> "ReadModel":
    """A model by hub id, folder, config.json or .gguf file. UsageError when it is none."""
    from model_optimizer.core import ReadModel

    if reference.strip().lower().endswith(".gguf"):
        from model_optimizer.system import files, gguf_header

        found = gguf_header.model(files.expanded(reference.strip()))
        return ReadModel(spec=gguf_header.spec(found), gguf=found)
    from model_optimizer.system import models

    return ReadModel(spec=models.read(reference))


def scheme(name: str) -> "Scheme":
    """A number format by its name. UsageError lists those there are."""
    from model_optimizer.schemes import canonical

    return plugins.load("model_optimizer.schemes", canonical(name)).SCHEME


def gpu_memory(
    name: str | None, *, engine: str = "vllm", host: Host | None = None, used_bytes: int | None = None
) -> "GpuMemory":
    """The memory that an engine works in: of the GPU named, else of this machine or the host given.

    For engines that run on a CPU it is the host's own. HostError when there is no GPU.
    """
    from model_optimizer.planner import fit as room
    from model_optimizer.planner.memory import card

    found = room.engine_name(engine)
    if name is not None:
        return card.named(name, used_bytes=used_bytes)
    if found not in room.MODELLED and _is_cpu_engine(found):
        return card.host_memory(host or probe(), used_bytes=used_bytes)
    return card.of_host(host or probe(), used_bytes=used_bytes)


def fit(question: "FitQuestion") -> "Fit":
    """Whether an engine starts with this model on this memory, and what its KV cache will be.

    UsageError for numbers that contradict the model, and for an engine whose memory is not modelled.
    """
    from model_optimizer.planner import fit as room

    name = room.engine_name(question.engine)
    question = dataclasses.replace(question, engine=name)
    if name in room.MODELLED or not _is_cpu_engine(name):
        return room.fit(question)
    chosen = question.scheme or scheme(_own_scheme(question.model))
    return room.fit(question, scheme=chosen, memory=plugins.load("model_optimizer.engines", name).memory)


def estimate(question: "EstimateQuestion", *, progress: Progress) -> "Estimate":
    """How fast a load is served: times, rates, how sure they are, what limits, where they come from.

    UsageError for contradictions, NoFeasiblePlan when the engine would not start at all.
    """
    from model_optimizer.planner import estimate as room
    from model_optimizer.planner import fit as memory
    from model_optimizer.system import step_tables

    placed = question.placed
    name = memory.engine_name(placed.engine)
    tables = question.step_model in ("auto", "tables")
    at_hand = tables and (question.step_model == "tables" or step_tables.installed() is not None)
    return room.estimate(
        dataclasses.replace(question, placed=dataclasses.replace(placed, engine=name)),
        _desk(at_hand, progress),
    )


def _desk(tables: bool, progress: Progress) -> "Desk":
    """What is known of speed on this machine: measurements, a calibration, and tables where asked for."""
    from model_optimizer.facts import measured
    from model_optimizer.planner import estimate as room
    from model_optimizer.system import calibrations, ledger, step_tables

    own = ledger.read()

    def rows(gpu: str, engine: str) -> "Sequence[LedgerRow]":
        return (*measured.rows(gpu, engine), *own)

    return room.Desk(
        fit=fit,
        scheme=scheme,
        ledger=rows,
        grid=(lambda asked: step_tables.load(asked, progress=progress)) if tables else None,
        tables_because="the extra `tables` is not installed",
        calibration=calibrations.read,
    )


def calibrate(
    python: Path,
    *,
    model: str,
    gpu: str | None,
    seconds: float,
    progress: Progress,
    answer: Path | None = None,
) -> "tuple[Calibration, Path]":
    """Measure the GPU of this machine with the PyTorch of an interpreter, and keep what was found.

    `model` gives the shapes, `gpu` the name in the facts where the driver's is not enough. With `answer`
    nothing runs: it is what the script wrote on another machine. HostError when PyTorch sees no GPU,
    ToolError when nothing could be measured.
    """
    from model_optimizer.flow import calibrate as room

    if answer is not None:
        return room.keep(room.read_answer(answer), gpu=gpu)
    return room.run(python, model=model, gpu=gpu, seconds=seconds, progress=progress)


def _is_cpu_engine(name: str) -> bool:
    """Engines on the CPU bring arithmetic of their own that was compared with measurements."""
    room = "model_optimizer.engines"
    return name in plugins.names(room) and "gpu" not in plugins.load(room, name).DEVICES


def plan(request: "PlanRequest", *, progress: Progress = lambda _what, _share: None) -> Plan:
    """Engine, release, scheme, parallelism, replicas and settings; `feasible` False says what binds instead.

    Without a GPU named or in the host, the plan is for the CPU. UsageError for contradictions, HostError
    when the GPUs here cannot be read or differ, or there is none and the weights are not here.
    """
    from model_optimizer.flow import plan as asking
    from model_optimizer.planner.decide import decide
    from model_optimizer.planner.memory import card

    if request.gpu is None:
        request = dataclasses.replace(request, host=request.host or probe())
        if request.host is not None and request.host.gpus == ():
            card.foreign(request.host)
            return _plan_for_cpu(request)
    question = asking.question_of(request)
    desk = _desk(request.step_model == "tables", progress)
    steps = asking.stepping(question, request.step_model, desk)
    required = request.step_model in ("tables", "measured")
    return decide(question, asking.functions(steps, required=required))


def _plan_for_cpu(request: "PlanRequest") -> Plan:
    """The most precise variant that can be made here; which one is fastest, `optimize` measures."""
    from model_optimizer.flow import plan as asking
    from model_optimizer.flow.wiring import Choices

    if request.model.spec.path is None:
        raise HostError(
            "there is no GPU here, and a plan for the CPU needs the model's weights",
            cause=(f"only the shape of `{request.checkpoint}` is known here",),
            hint=("name a GPU with --gpu, for example --gpu h100", "or pass the folder of the model"),
            reference="no-gpu",
        )
    wishes = request.wishes
    asked = Optimization(
        model=request.checkpoint,
        slo=request.slo,
        choices=Choices(
            engines=(wishes.engine,) if wishes.engine else (),
            schemes=(wishes.scheme,) if wishes.scheme else (),
        ),
        prompt_tokens=request.prompt_tokens,
        output_tokens=request.output_tokens,
        qps=request.qps,
        concurrency=request.concurrency,
        requests=request.requests,
    )
    return asking.for_cpu(candidates(asked, progress=lambda text, share: None))


def _own_scheme(model: ModelSpec) -> str:
    """The scheme that a checkpoint is in; 32 bits where that is not one of ours."""
    own = model.quantization.scheme if model.quantization else model.dtype
    return own if own in plugins.names("model_optimizer.schemes") else "fp32"


def diagnose(
    log: Path | None,
    *,
    host: Host | None = None,
    pid: int | None = None,
    silent_limit_s: float | None = None,
) -> "Diagnosis":
    """The one cause that a log shows; standard input when `log` is None.

    `host` is what the log came from. `pid` or `silent_limit_s` (default 600) also judge its silence. Raises
    UsageError when the log cannot be read or is not text.
    """
    from model_optimizer.diagnose import of_file

    return of_file(log, host=host, pid=pid, silent_limit_s=silent_limit_s)


def diagnose_command(
    command: "Sequence[str]", *, host: Host | None = None, on_line: "Callable[[str], None]"
) -> "Diagnosis":
    """Run a command and say why it failed; each line that it prints is also handed to `on_line`.

    Raises HostError when it cannot be started.
    """
    from model_optimizer.diagnose import of_command

    return of_command(command, host=host, on_line=on_line)


def explained(error: MoptError) -> MoptError:
    """An error of an outside tool with the cause that its log shows; unchanged when none is sure."""
    from model_optimizer.diagnose import explained as room

    return room(error)


def plan_quantization(
    model: str, *, scheme: str, to: str | None = None, asked: "Asked | None" = None
) -> "Quantization":
    """What it takes to quantize a model to `scheme`, in a format or for an engine `to` where one is named.

    Nothing is written. Raises UsageError for what cannot be made, with what can be made instead,
    NoFeasiblePlan for what the target of `asked` cannot run, HostError for calibration data that do not fit.
    """
    from model_optimizer.quantize import run as room
    from model_optimizer.system import models

    asked = asked or room.Asked()
    kit = room.Kit(tools=_tools(), schemes=_schemes(), engines=plugins.load_all("model_optimizer.engines"))
    name = plugins.load("model_optimizer.schemes", scheme).SCHEME.name
    spec = models.read(model)
    source = models.checkpoint_artifact(spec)
    engine = (asked.target.engine or "").partition("==")[0] or None
    made = {tool.WRITES[name] for tool in kit.tools.values() if name in tool.WRITES}
    formats = _formats(to or engine, dict(kit.tools)) if to or engine or not made else tuple(sorted(made))
    order = Order(model=spec, source=source, scheme=name, formats=formats)
    return room.prepare(order, asked, kit, probe())


def quantize(found: "Quantization", out: Path, *, progress: Progress) -> Artifact:
    """Do what `plan_quantization` planned; raises and leaves behind what `make` does."""
    from model_optimizer.quantize import run as room
    from model_optimizer.system import environments, making, probe

    making.require_new(out, found.work.source)
    making.require_room(found.work.needs, out, probe.available_memory_bytes())
    return room.quantize(found, out, environments.run_worker, progress)


def plan_making(model: str, *, scheme: str | None = None, to: str) -> Work:
    """What it takes to convert a model to the format or for the engine `to`, in `scheme` where one is named.

    Nothing is written. Raises UsageError for what cannot be made, with what can be made instead.
    """
    from model_optimizer.convert import run as converting
    from model_optimizer.system import models

    tools, schemes = _tools(), _schemes()
    name = plugins.load("model_optimizer.schemes", scheme).SCHEME.name if scheme else None
    spec = models.read(model)
    source = models.checkpoint_artifact(spec)
    formats = _formats(to, tools)
    order = Order(model=spec, source=source, scheme=name or "fp32", formats=formats)
    chain = converting.plan(order, tools, scheme=name)
    return Work(chain=chain, source=source, needs=paths.needs(chain, spec, tools, schemes))


def make(work: Work, out: Path, *, progress: Progress) -> Artifact:
    """Do what `plan_making` planned. `out` appears when it is whole.

    Raises UsageError when `out` exists, HostError when room or the environment is missing, ToolError when
    a tool fails; nothing half-made stays behind.
    """
    from model_optimizer.system import environments, making, probe

    making.require_new(out)
    making.require_room(work.needs, out, probe.available_memory_bytes())
    bench = making.Bench(tools=_tools(), schemes=_schemes(), run=environments.run_worker)
    return making.follow(work.chain, work.source, out, bench, progress)


def _tools() -> "dict[str, Tool]":
    """Every tool of both rooms; `run` is the stage beside them."""
    rooms = ("model_optimizer.convert", "model_optimizer.quantize")
    found = {name: module for room in rooms for name, module in plugins.load_all(room).items()}
    return {name: module for name, module in found.items() if name != "run"}  # pyright: ignore[reportReturnType]


def _schemes() -> "dict[str, Scheme]":
    return {name: module.SCHEME for name, module in plugins.load_all("model_optimizer.schemes").items()}


def _formats(to: str | None, tools: "dict[str, Tool]") -> tuple[str, ...]:
    """The formats that an engine reads, a format by its name, or all that tools write."""
    known = tuple(sorted({form for tool in tools.values() for form in tool.WRITES.values()}))
    if to is None:
        return known
    name = plugins.canonical(to)
    engines = plugins.names("model_optimizer.engines")
    if name in engines:
        return tuple(plugins.load("model_optimizer.engines", name).READS)
    if name in known:
        return (name,)
    raise UsageError(
        f"`{to}` is neither a format nor an engine",
        hint=(f"formats: {', '.join(known)}", f"engines: {', '.join(engines) or 'none'}"),
    )


def verify(
    candidate: str,
    reference: str | None = None,
    *,
    progress: Progress,
    layer: str = "model",
    scheme: str | None = None,
    texts: Path | None = None,
    max_texts: int | None = None,
    run: Path | None = None,
    wishes: "Wishes | None" = None,
    inside: "Inside | None" = None,
) -> Verdict:
    """Compare a candidate with the checkpoint it was made from.

    `candidate` is an ONNX folder or file, a checkpoint, or the URL of a server on this machine; with a `run`
    folder it is the name of one of its candidates, and the verdict is also written there. `scheme` is the
    number format whose limits hold (default: what the candidate says of itself, for a server what the
    reference is stored in), `texts` a file of the user's own, `wishes` what layers `format` and `quality` are
    asked for. Raises UsageError for what cannot be compared, HostError when an environment is missing,
    ToolError when a model cannot be run or a server not be asked.
    """
    from model_optimizer import verify as room
    from model_optimizer.flow.verify import Case, Desk, verify_candidate
    from model_optimizer.system import files, runs
    from model_optimizer.verify import limits
    from model_optimizer.verify import texts as inputs

    if layer == "service":
        if run:
            raise UsageError(
                "`--layer service` asks a URL, which is no candidate of a run",
                hint=("leave --run out; --out FILE keeps the verdict",),
            )
        return _service(candidate, inside, progress, scheme)
    if layer == "operators" and run:
        raise UsageError(
            "`--layer operators` takes a folder, not a run", hint=("name the candidate's artifacts folder",)
        )
    if layer not in room.LAYERS:
        raise UsageError(f"there is no layer `{layer}`", hint=(f"layers today: {', '.join(room.LAYERS)}",))
    if layer == "format":
        return _format(candidate, scheme, wishes, run)
    chosen = inputs.read(texts) if texts else inputs.builtin()
    scheme = plugins.load("model_optimizer.schemes", scheme).SCHEME.name if scheme else None
    folder = runs.open_run(run) if run else None
    if layer == "operators" and not folder:
        return _operators(candidate, reference, scheme, chosen, inside, progress)
    made, truth = _of_run(folder, candidate) if folder else _of_paths(candidate, reference, scheme)
    if layer == "model" and truth.task == "vision" and isinstance(made, Artifact):
        return _vision(made, truth, progress)
    case = Case(
        candidate=made,
        reference=truth,
        gate=_gate(scheme or made.scheme, wishes if layer == "model" else None),
        texts=chosen,
        max_texts=max_texts or limits.MAX_TEXTS,
        free_tokens=(wishes.free_tokens if wishes else limits.FREE_TOKENS) if layer == "model" else 0,
        served=_served(folder, candidate) if folder else None,
    )
    with files.temporary() as place:
        desk = Desk(scratch=place, log=place / "server.log")
        if folder:
            desk = Desk(scratch=folder.path / "verify", log=folder.log(f"verify-{candidate}"))
        if layer == "quality":
            verdict = _quality(case, wishes, desk, progress)
        else:
            verdict = verify_candidate(case, desk, progress)
    if folder:
        verdict = dataclasses.replace(verdict, subject=candidate, reference="reference")
        folder.write(verdict, f"candidates/{candidate}/verdict-{layer}")
    return verdict


def _format(candidate: str, scheme: str | None, wishes: "Wishes | None", run: Path | None) -> Verdict:
    from model_optimizer.flow.format import verify_format
    from model_optimizer.system import runs
    from model_optimizer.verify.format_engine import Target

    if "://" in candidate:
        raise UsageError("a server has no format to look at", hint=("name the folder that it serves",))
    folder = runs.open_run(run) if run else None
    path = candidate
    if folder:
        made, _ = _of_run(folder, candidate)
        path = made.path
    target = Target()
    if wishes:
        target = Target(engine=wishes.engine, gpu=wishes.gpu, tensor_parallel=wishes.tensor_parallel)
    verdict = verify_format(
        Path(path),
        target,
        engines=plugins.load_all("model_optimizer.engines"),
        schemes=_schemes(),
        scheme=plugins.canonical(scheme) if scheme else None,
    )
    if folder:
        verdict = dataclasses.replace(verdict, subject=candidate)
        folder.write(verdict, f"candidates/{candidate}/verdict-format")
    return verdict


def _gate(scheme: str, wishes: "Wishes | None") -> Gate:
    """A scheme's limits, with what layer `model` was asked for in their place."""
    gate: Gate = plugins.load("model_optimizer.schemes", scheme).SCHEME.gate
    known = ("recovery", "top1", "topk", "free_running", "cosine", "rank")
    own = dict(wishes.gate) if wishes else {}
    if unknown := sorted(set(own) - set(known)):
        raise UsageError(f"layer model has no limit `{unknown[0]}`", hint=(f"limits: {', '.join(known)}",))
    return dataclasses.replace(gate, **own)


def _vision(made: Artifact, truth: Artifact, progress: Progress) -> Verdict:
    from model_optimizer.system import environments
    from model_optimizer.verify.vision import verify_vision

    bits = plugins.load("model_optimizer.schemes", made.scheme).SCHEME.weight_bits
    return verify_vision(made, truth, weight_bits=bits, run=environments.run_worker, progress=progress)


def _service(url: str, inside: "Inside | None", progress: Progress, named: str | None) -> Verdict:
    from model_optimizer.flow import verify_inside, verify_service
    from model_optimizer.verify import endpoint

    if not endpoint.is_url(url):
        raise UsageError(
            "`--layer service` asks a running server", hint=("name its URL, http://127.0.0.1:8000",)
        )
    place = endpoint.read(url, task="generate", scheme="bf16")
    told = verify_service.told_of(place.url, scheme(named) if named else None, scheme)
    return verify_service.verify(place.url, inside or verify_inside.Inside(), progress=progress, told=told)


def _operators(
    candidate: str,
    reference: str | None,
    scheme: str | None,
    texts: "Texts",
    inside: "Inside | None",
    progress: Progress,
) -> Verdict:
    from model_optimizer.flow import verify_inside as flow
    from model_optimizer.verify import endpoint

    if endpoint.is_url(candidate):
        raise UsageError(
            "a server's operators cannot be looked into",
            hint=("name the folder that it serves", "--layer model or --layer service asks a server"),
        )
    asked = inside or flow.Inside()
    if flow.engine_at(Path(candidate), probe()):
        truth = _truth(reference)
        return flow.verify_engine(
            Path(candidate), truth, asked, schemes=_schemes(), texts=texts, progress=progress
        )
    made, truth = _of_paths(candidate, reference, scheme)
    plain = made if isinstance(made, Artifact) and made.format.startswith("onnx") else None
    return flow.verify_operators(
        Path(candidate),
        plain,
        truth,
        asked,
        schemes=_schemes(),
        texts=texts,
        progress=progress,
    )


def _quality(case: "Case", wishes: "Wishes | None", desk: "VerifyDesk", progress: Progress) -> Verdict:
    from model_optimizer.flow import quality

    engines = plugins.load_all("model_optimizer.engines")
    kit = quality.Kit(engines=engines, schemes=_schemes(), host=probe())
    return quality.verify_quality(case, wishes or quality.Wishes(), kit, desk, progress)


def _of_paths(
    candidate: str, reference: str | None, scheme: str | None
) -> tuple["Artifact | Endpoint", Artifact]:
    from model_optimizer.system import models
    from model_optimizer.verify import endpoint, subject

    truth = _truth(reference)
    if endpoint.is_url(candidate):
        return endpoint.read(candidate, task=truth.task, scheme=scheme or truth.scheme), truth
    made = subject.read(Path(candidate), task=truth.task, scheme=scheme)
    if made is None:
        made = models.checkpoint_artifact(models.read(candidate))
        made = dataclasses.replace(made, scheme=scheme or made.scheme)
    return made, truth


def _truth(reference: str | None) -> Artifact:
    """What others are compared with."""
    from model_optimizer.system import models

    if reference is None:
        raise UsageError("nothing to compare with", hint=("name the original with --against FOLDER",))
    return models.checkpoint_artifact(models.read(reference))


def _of_run(folder: "RunFolder", candidate: str) -> tuple[Artifact, Artifact]:
    made, truth = folder.read_artifact(candidate), folder.read_artifact("reference")
    if made is None or truth is None:
        known = ", ".join(folder.candidates()) or "none"
        raise UsageError(f"the run has no artefact of `{candidate}`", hint=(f"its candidates: {known}",))
    return made, truth


def _served(folder: "RunFolder", candidate: str) -> "tuple[Plan, Engine] | None":
    """How a candidate of a run is served; None when the run has no plan of it."""
    plan = folder.read(Plan, f"candidates/{candidate}/plan")
    return (plan, plugins.load_all("model_optimizer.engines")[plan.engine]) if plan else None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Optimization:
    """What is asked of `optimize`. What is None takes the default of the model's task; reports say which.

    `qps` asks for an open loop, `concurrency` for a closed one.
    """

    model: str
    slo: Slo
    choices: "Choices"
    prompt_tokens: Lengths | None = None
    output_tokens: Lengths | None = None
    qps: float | None = None
    concurrency: int | None = None
    requests: int | None = None


def optimize(asked: Optimization, runs: Path, *, progress: Progress) -> tuple[Path, Record]:
    """Make, verify, serve and measure every variant of a model that can run here; keep the best.

    Returns the run folder, made below `runs`, and its record. Raises UsageError when the model cannot be
    read, HostError when the machine is not ready, NoFeasiblePlan when nothing can run.
    """
    from datetime import UTC, datetime

    from model_optimizer import __version__
    from model_optimizer.flow import optimize as pipeline
    from model_optimizer.system import environments, models
    from model_optimizer.system import runs as folders

    model = models.read(asked.model)
    workload = _workload(asked, model)
    request = pipeline.Request(
        model=model,
        workload=workload,
        slo=asked.slo,
        command=("mopt", *sys.argv[1:]),
        version=__version__,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        narrowed=_narrowed(asked.choices),
    )
    environments.ensure("onnx", progress=progress)
    folder = folders.create(runs, model.name)
    progress(f"run folder: {folder.path}", None)
    stages = _wiring(asked.choices, model).stages()
    return folder.path, pipeline.optimize(folder, request, stages, progress)


def resume(
    run: Path, *, texts: Path | None = None, seconds: float | None = None, progress: Progress
) -> tuple[Path, Record]:
    """Finish an interrupted run as it was asked; what is there is not done again.

    `texts` and `seconds` (of each level of load) replace those of the run. Raises UsageError when it is none.
    """
    from model_optimizer.flow import optimize as pipeline
    from model_optimizer.system import environments
    from model_optimizer.system import runs as folders

    folder = folders.open_run(run)
    model = folder.read(ModelSpec, "model")
    if model is None:
        raise UsageError(f"`{run}` has no model.json", hint=("start a new run",))
    choices = _choices(folder.read(Run, "run"), texts, seconds)
    environments.ensure("onnx", progress=progress)
    return folder.path, pipeline.optimize(folder, None, _wiring(choices, model).stages(), progress)


def _narrowed(choices: "Choices") -> Narrowed:
    return Narrowed(
        engines=choices.engines,
        schemes=choices.schemes,
        budget_bytes=choices.budget_bytes,
        texts=str(choices.texts.absolute()) if choices.texts else None,
        seconds=choices.seconds,
    )


def _choices(run: Run | None, texts: Path | None, seconds: float | None) -> "Choices":
    """What a run was asked, with what replaces it."""
    from model_optimizer.flow.wiring import Choices

    kept = run.narrowed if run is not None else Narrowed()
    return Choices(
        engines=kept.engines,
        schemes=kept.schemes,
        budget_bytes=kept.budget_bytes,
        texts=texts or (Path(kept.texts) if kept.texts else None),
        seconds=seconds or kept.seconds or Choices().seconds,
    )


def candidates(asked: Optimization, *, progress: Progress) -> "Options":
    """What `optimize` would try, and what it would not; nothing is made."""
    from model_optimizer.system import models

    model = models.read(asked.model)
    stages = _wiring(asked.choices, model).stages()
    workload = _workload(asked, model)
    return stages.options(stages.probe(), model, stages.checkpoint(model), workload, asked.slo)


def _wiring(choices: "Choices", model: ModelSpec) -> "Wiring":
    from model_optimizer.flow.wiring import Kit, Wiring

    known = {"engine": choices.engines, "scheme": choices.schemes}
    asked = {
        kind: tuple(plugins.load(f"model_optimizer.{kind}s", n).__name__.rpartition(".")[2] for n in names)
        for kind, names in known.items()
    }
    choices = dataclasses.replace(choices, engines=asked["engine"], schemes=asked["scheme"])
    kit = Kit(
        engines=plugins.load_all("model_optimizer.engines"),
        schemes=_schemes(),
        tools=_tools(),
        checks=plugins.load_all("model_optimizer.doctor.checks"),
    )
    return Wiring(kit, choices, model)


def _workload(asked: Optimization, model: ModelSpec) -> Workload:
    """The load that was asked for, with defaults that take seconds on a laptop.

    Raises UsageError for what cannot be asked of this model, before anything is made.
    """
    from model_optimizer.system import models
    from model_optimizer.verify import texts

    models.require_weights(model)
    task = model.task
    if asked.choices.texts:
        texts.read(asked.choices.texts)
    if not models.tokenizer_files(model):
        raise UsageError(
            f"`{model.path}` has no tokenizer",
            hint=("put the model's tokenizer.json and tokenizer_config.json beside its config.json",),
        )
    if asked.qps is not None and asked.concurrency is not None:
        raise UsageError("--qps and --concurrency exclude each other", hint=("give one of them",))
    generates = task == "generate"
    concurrency = None if asked.qps else asked.concurrency or (4 if generates else 8)
    work = Workload(
        task=task,
        arrivals="poisson" if asked.qps else "closed",
        qps=asked.qps,
        concurrency=concurrency,
        requests=asked.requests,
        prompt_tokens=asked.prompt_tokens or Lengths.fixed(64 if generates else 32),
        output_tokens=asked.output_tokens or Lengths.fixed(32),
    )
    longest = work.prompt_tokens.quantile(0.999) + (work.output_tokens.quantile(0.999) if generates else 0)
    if model.max_position is not None and longest > model.max_position:
        raise UsageError(
            f"requests of {longest:,} tokens are too long for `{model.name}`",
            cause=(f"it takes {model.max_position:,} tokens, prompt and answer together",),
            hint=("lower --prompt-tokens or --output-tokens",),
        )
    return work


def tuning(request: "TuneRequest", out: Path | None, *, progress: Progress) -> "Prepared":
    """What a study would search. Nothing is started or written."""
    from model_optimizer.flow import study

    return study.prepare(request, out or Path("study"), room(), progress)


def tune(
    request: "TuneRequest | None",
    folder: Path | None,
    *,
    progress: Progress,
    pause_s: float | None = None,
) -> "tuple[Path, Study]":
    """Search the best settings; a `request` of None goes on with the study in `folder`.

    After `pause_s` seconds nothing new is begun: the study says that it is paused.

    Raises ToolError when the default cannot be measured, HostError when the GPU is taken or the study
    cannot be kept, UsageError for what makes no sense.
    """
    from datetime import UTC, datetime

    from model_optimizer.flow import study

    asked = request
    if asked is None:
        assert folder is not None
        request = study.reopen(folder)
    else:
        request, folder = asked, study.named(folder, asked, now=datetime.now(UTC))
    prepared = study.prepare(request, folder, room(), progress)
    if asked is not None:
        study.create(folder, asked)
    try:
        return folder, _carried_out(request, prepared, folder, progress, pause_s)
    except KeyboardInterrupt as stop:
        stop.add_note(f"`mopt tune --resume {folder}` goes on where this study stands")
        raise


def _carried_out(
    request: "TuneRequest", prepared: "Prepared", folder: Path, progress: Progress, pause_s: float | None
) -> "Study":
    """On this machine, or on those of a cluster."""
    from model_optimizer.flow import study

    if request.workers is None:
        return study.run(prepared, folder, progress, pause_s=pause_s)
    from model_optimizer.flow import ray_pool

    gpus = prepared.question.plan.gpus if "gpu" in prepared.runner.engine.DEVICES else 0
    work = partial(carry_out, request)
    with ray_pool.pool(request.workers, work, gpus=gpus, cpus=request.worker_cores) as (execute, many):
        return study.run(prepared, folder, progress, execute=execute, workers=many, pause_s=pause_s)


def carry_out(request: "TuneRequest", order: "TuneOrder") -> "Outcome":
    """One trial of a study on this machine: what a worker of a cluster does. The study is prepared anew."""
    from model_optimizer.flow import study
    from model_optimizer.system import files

    with files.temporary() as folder:
        (folder / "log").mkdir()
        return study.prepare(request, folder, room(), lambda text, share: None).runner(order)


def room() -> "Room":
    """What a study is handed: engines, the planner, a look at this machine."""
    from model_optimizer.flow.study import Room

    def gpu() -> "GpuMemory | None":
        try:
            return gpu_memory(None)
        except HostError:
            return None

    return Room(
        engines=plugins.load_all("model_optimizer.engines"),
        scheme=scheme,
        fit=fit,
        estimate=lambda question: estimate(question, progress=lambda text, share: None),
        gpu=gpu,
        probe=probe,
        schemes=_schemes(),
    )


def side_by_side(
    a: "TuneRequest", b: "TuneRequest", folder: Path | None, *, repeats: int, most: int, progress: Progress
) -> "tuple[Path, SideBySide]":
    """Two plans in turn under one load; when b is worse, each difference is put back to see which it is."""
    from datetime import UTC, datetime

    from model_optimizer.flow import side_by_side as pairs
    from model_optimizer.flow import study

    place = study.named(folder, a, now=datetime.now(UTC))
    return place, pairs.compare(a, b, place, room(), progress, repeats=repeats, most=most)

"""`serve` outside of tests: a start that is explained when it fails, adapted where that was asked for,
compared with its prediction, and remembered."""

import dataclasses
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from model_optimizer.core import (
    Engine,
    Estimate,
    Fit,
    FitQuestion,
    GpuMemory,
    Host,
    HostError,
    Launch,
    ModelSpec,
    MoptError,
    Plan,
    Progress,
    Scheme,
    ToolError,
    UsageError,
    digest,
)
from model_optimizer.core.diagnosis import Recognized
from model_optimizer.core.ledger import LedgerRow
from model_optimizer.core.units import show_bytes
from model_optimizer.diagnose import Diagnosing
from model_optimizer.facts.versions import minor
from model_optimizer.serve import (
    Order,
    ServerHandle,
    StartProcess,
    contained,
    engine_files,
    start,
    start_launch,
    starts,
)
from model_optimizer.serve.printed import QUANTITIES, Compared, compare, numbers
from model_optimizer.serve.run import LIMIT_S
from model_optimizer.serve.starts import Kind
from model_optimizer.system import environments, gpu_memory, ledger, models
from model_optimizer.system.processes import Rotation, Running, begin_log

from .next_plan import Change, Failed, next_change
from .placed import placed

STEPS_OF_FIX = 2
NOISE_BYTES = 1 << 30
"""What a driver and a display hold of a GPU that nobody works on. ASSUMED."""

HEAD_BYTES, TAIL_BYTES = 1 << 18, 1 << 20
"""Of a long log: what is looked at to find a cause."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """What discovery found and the planner offers. `gpu` is the GPU of this machine, None without one."""

    host: Host
    fit: Callable[[FitQuestion], Fit]
    scheme: Callable[[str], Scheme]
    gpu: Callable[[], GpuMemory | None]
    held: Callable[[], tuple[int, int] | None] = gpu_memory.held
    holders: Callable[[], tuple[str, ...]] = gpu_memory.holders


@dataclass(frozen=True, slots=True, kw_only=True)
class How:
    """`runtime` is docker or podman when the engine is to run in `image` (None: the plan's, else its own).

    `gpus` False asks for no GPU there. `adapt` is how often a start that memory stopped may be tried with the
    next plan. `rotation` keeps the log from growing for ever.
    """

    log: Path
    rotation: Rotation | None = None
    port: int | None = None
    key: str | None = None
    python: Path | None = None
    program: str | None = None
    runtime: str | None = None
    image: str | None = None
    gpus: bool = True
    limit_s: float = LIMIT_S
    outlive: bool = False
    adapt: int = 0
    start_process: StartProcess | None = None
    began: Callable[[Running], None] = lambda _running: None


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """A server that answers. `order` is what it runs, after the `changes` that made it start."""

    server: ServerHandle
    order: Order
    changes: tuple[Change, ...] = ()
    compared: tuple[Compared, ...] = ()


def prepared(order: Order, engine: Engine, how: How) -> Engine:
    """The engine as it will be started: in its image where that was asked for.

    UsageError for a key that its server would not ask for, and for a graph that is no engine yet.
    """
    serves: Mapping[str, frozenset[str]] = getattr(engine, "SERVES", engine.READS)
    if order.plan.format not in serves:
        raise UsageError(
            f"{engine.TITLE} runs engines, and `{order.plan.checkpoint}` is none",
            hint=(
                f"build one with `mopt convert MODEL --to {order.plan.engine.replace('_', '-')}`",
                "or serve the graph itself: --engine onnxruntime",
            ),
            reference="engine-not-served",
        )
    if how.key is not None and getattr(engine, "KEY", None) is None:
        raise UsageError(
            f"the server of {engine.TITLE} cannot be handed a key",
            cause=("it takes one on its command line alone, where everyone on the machine reads it",),
            hint=("unset MOPT_API_KEY, keep it on 127.0.0.1, and put a proxy that asks for a key before it",),
        )
    if how.runtime is None:
        return engine
    return contained.as_engine(engine, how.runtime, how.image, gpus=how.gpus)


def begin(order: Order, engine: Engine, room: Room, how: How, progress: Progress) -> Started:
    """Start it, adapt it where that is allowed, and keep what was learnt.

    Raises what `serve.start` raises, with the cause that the log shows; NextPlan where memory was it.
    """
    engine = prepared(order, engine, how)
    _require_gpu(order, engine, room, how)
    _require_version(order, engine, how)
    if other := _other_release(order.plan, engine, how):
        progress(other, None)
    model = _model(order)
    changes: list[Change] = []
    while True:
        words = _Words(how)
        try:
            server = _start(order, engine, room, words.noted(), progress)
            break
        except MoptError as error:
            found = diagnosed(how.log, from_byte=words.begin)
            explained = explain(error, found, how.log)
            change = _next(order, engine, room, model, found, _said(how.log, words.begin))
            if change is None:
                raise explained from error
            if len(changes) >= how.adapt:
                raise _proposing(explained, change) from error
            changes.append(change)
            progress(f"{_first(explained)}; next: {shown(change)}", None)
            order = dataclasses.replace(order, plan=change.of(order.plan))
    compared = learn(order, engine, room, model, server, how)
    return Started(server=server, order=order, changes=tuple(changes), compared=compared)


class _Words:
    """Where in the log the words of one start begin: those of its last process, once there is one. Pulling an
    image writes to the log before that, and may leave so much that the process gets a new one."""

    def __init__(self, how: How) -> None:
        self._how = how
        self.begin = begin_log(how.log, how.rotation)

    def noted(self) -> How:
        """The same, and where each process begins is kept."""
        return dataclasses.replace(self._how, began=self._began)

    def _began(self, running: Running) -> None:
        self.begin = running.log_from
        self._how.began(running)


def _start(order: Order, engine: Engine, room: Room, how: How, progress: Progress) -> ServerHandle:
    begin_process = how.start_process or (
        partial(contained.start, say=lambda text: progress(text, None), rotation=how.rotation)
        if how.runtime
        else partial(_start_launch, how)
    )

    def begun(launch: Launch, log: Path) -> Running:
        running = begin_process(launch, log)
        how.began(running)
        return running

    return start(
        order.plan,
        order.artifact,
        engine=engine,
        log=how.log,
        progress=progress,
        start_process=begun,
        port=how.port,
        key=how.key,
        limit_s=how.limit_s,
        earlier=starts.read(kind_of(order, engine, room, how)),
        on_hang=what_it_does,
        outlive=how.outlive,
    )


def _start_launch(how: How, launch: Launch, log: Path) -> Running:
    if how.program is not None and launch.program is not None:
        launch = dataclasses.replace(launch, program=how.program)
    return start_launch(launch, log, python=how.python, rotation=how.rotation)


# -- before


def _require_gpu(order: Order, engine: Engine, room: Room, how: How) -> None:
    """Raises HostError when the engine needs a GPU and there is none, or others hold what it would take."""
    if "gpu" not in engine.DEVICES or "cpu" in engine.DEVICES:
        return
    if room.host.gpus == ():
        planned = f" (the plan is for {order.plan.gpu})" if order.plan.gpu else ""
        raise HostError(
            f"{engine.TITLE} needs a GPU, and there is none here{planned}",
            hint=(
                "`mopt doctor` says what of the driver is missing",
                "`mopt plan MODEL` plans for this machine",
            ),
            reference="no-gpu",
        )
    held = room.held()
    if held is None or held[0] < NOISE_BYTES:
        return
    share = order.plan.setting("gpu-memory-utilization")
    used, total = held
    if share is not None and float(share) * total > total - used:
        raise HostError(
            "another process holds memory of the GPU that this plan takes",
            cause=(
                f"{show_bytes(used)} of {show_bytes(total)} are held, the plan takes {float(share):.0%}",
                *room.holders(),
            ),
            hint=("end it, or take less: --set gpu-memory-utilization=" + f"{_left_share(used, total):g}",),
            reference="gpu-taken",
        )


def _require_version(order: Order, engine: Engine, how: How) -> None:
    """Raises HostError where a built engine is of a version that the installed library does not run."""
    have = version_of(order.plan, engine, how)
    if order.plan.format in getattr(engine, "SERVES", {}) and have != "unknown":
        engine_files.require_version(Path(order.artifact.path), engine.TITLE, have)


def _other_release(plan: Plan, engine: Engine, how: How) -> str | None:
    """A warning when what is installed is not the release that the plan's options were checked for."""
    wanted, have = plan.engine_version, version_of(plan, engine, how)
    if how.runtime is not None or wanted is None or have in (wanted, "unknown"):
        return None
    try:
        if minor(wanted) == minor(have):
            return None
    except UsageError:
        pass  # a build of one's own: no release of the facts is it
    return (
        f"the plan is for {engine.TITLE} {wanted}, {have} is installed: defaults and options may differ "
        f"(`mopt explain --diff {plan.engine.replace('_', '-')} {wanted} {have}`)"
    )


def _left_share(used: int, total: int) -> float:
    return max(0.05, int((total - used - NOISE_BYTES // 2) / total * 100) / 100)


def _model(order: Order) -> ModelSpec | None:
    """The shape of what is served; None for files that do not say it."""
    with suppress(MoptError):
        return models.read(order.artifact.path)
    with suppress(MoptError):
        return models.read(order.plan.model)
    return None


# -- when it failed


def diagnosed(log: Path, *, from_byte: int = 0) -> Recognized | None:
    """The one cause that this start's part of the log shows; None when none is sure."""
    at_work = Diagnosing()
    at_work.text(_said(log, from_byte))
    primary = at_work.answer().primary
    return primary if primary is not None and primary.confidence != "low" else None


def explain(error: MoptError, found: Recognized | None, log: Path) -> MoptError:
    """The same error with the cause that its log shows before all others."""
    if found is None or error.exit_code != ToolError.exit_code:
        return error
    return type(error)(
        error.message,
        cause=(f"{found.id}: {found.cause}", *error.cause),
        hint=(*found.fix[:STEPS_OF_FIX], *error.hint, f"mopt diagnose {log} shows the lines"),
        reference=error.reference,
    )


def explained(error: MoptError, server: ServerHandle | None, log: Path) -> MoptError:
    """A death while it was watched."""
    return explain(error, diagnosed(log, from_byte=server.log_from if server else 0), log)


def _proposing(error: MoptError, change: Change) -> MoptError:
    """The error with the next plan as its first hint."""
    return NextPlan(
        error.message,
        cause=error.cause,
        hint=error.hint,
        reference=error.reference,
        change=change,
    )


class NextPlan(ToolError):
    """A start that memory stopped, with the change that should make it start."""

    def __init__(
        self,
        message: str,
        *,
        cause: tuple[str, ...] = (),
        hint: tuple[str, ...] = (),
        reference: str | None = None,
        change: Change,
    ) -> None:
        super().__init__(message, cause=cause, hint=hint, reference=reference)
        self.change = change


def shown(change: Change) -> str:
    """`max-model-len=4096 (4,096 tokens: ...)`."""
    settings = " ".join(f"{name}={value}" for name, value in change.settings.items())
    return f"{settings} ({change.because})"


def _next(
    order: Order,
    engine: Engine,
    room: Room,
    model: ModelSpec | None,
    found: Recognized | None,
    said: str,
) -> Change | None:
    if found is None:
        return None
    gpu = room.gpu() if "gpu" in engine.DEVICES else None
    return next_change(
        Failed(
            plan=order.plan,
            found=found,
            words=getattr(engine, "WORDS", {}),
            said=said,
            fits=partial(_fits, room, model, gpu),
            spare_bytes=room.host.memory_available_bytes,
            compute_capability=gpu.compute_capability if gpu else None,
        )
    )


def _fits(room: Room, model: ModelSpec | None, gpu: GpuMemory | None, plan: Plan) -> Fit | None:
    """What the planner says of a plan; None where it cannot say."""
    if model is None or gpu is None or plan.engine != "vllm":
        return None
    try:
        return room.fit(placed(plan, model, gpu, room.scheme))
    except (MoptError, ValueError):
        return None


def what_it_does(server: ServerHandle) -> tuple[str, ...]:
    """Of a server that never gets ready, while it still runs: what its silence means, and its stack."""
    at_work = Diagnosing()
    at_work.text(_said(server.log, server.log_from))
    silence = at_work.answer_about(server.log, pid=server.pid, limit_s=1.0).silence
    if silence is None or not silence.verdict:
        return ()
    return (silence.verdict, *silence.stack[:3])


def _first(error: MoptError) -> str:
    return ": ".join((error.message, *error.cause[:1]))[:300]


# -- when it answers


def learn(
    order: Order,
    engine: Engine,
    room: Room,
    model: ModelSpec | None,
    server: ServerHandle,
    how: How,
) -> tuple[Compared, ...]:
    """Keep how long it took, and what it printed of its KV cache beside what was predicted."""
    version = version_of(order.plan, engine, how)
    if server.start is not None:
        taken = dataclasses.replace(server.start, date=_now())
        with suppress(HostError):  # a full disk is no reason to stop a server that answers
            starts.add(kind_of(order, engine, room, how), taken)
    printed = numbers(server.log, getattr(engine, "PRINTS", {}), from_byte=server.log_from)
    compared = compare(printed, predicted(order.plan, engine, room, model))
    rows = tuple(_row(order.plan, room, version, one, server.log) for one in compared if one.predicted)
    if rows:
        with suppress(HostError, UsageError):
            ledger.append(rows)
    return compared


def predicted(plan: Plan, engine: Engine, room: Room, model: ModelSpec | None) -> Mapping[str, float]:
    """What was expected of `kv_cache_tokens` and `max_concurrency`; empty where nobody can say."""
    own: Callable[[Plan, ModelSpec | None], Mapping[str, float]] | None = getattr(engine, "expected", None)
    if own is not None:
        return own(plan, model)
    fit = _fits(room, model, room.gpu() if "gpu" in engine.DEVICES else None, plan)
    if fit is None or not fit.fits:
        return {}
    return {"kv_cache_tokens": float(fit.kv_cache_tokens), "max_concurrency": fit.max_concurrency}


def kind_of(order: Order, engine: Engine, room: Room, how: How) -> Kind:
    """Starts that should take as long as this one."""
    gpus = room.host.gpus or ()
    return Kind(
        engine=order.plan.engine,
        version=version_of(order.plan, engine, how),
        model=order.artifact.digest or order.artifact.path,
        gpu=gpus[0].name if gpus else (room.host.cpu.name or "CPU"),
    )


def version_of(plan: Plan, engine: Engine, how: How) -> str:
    """The plan's, else that of the package in the engine's environment, else `unknown`."""
    package: str | None = getattr(engine, "PACKAGE", None)
    if how.runtime is not None or package is None:
        return how.image or plan.engine_version or "unknown"
    try:
        where = environments.interpreter(engine.ENVIRONMENT, python=how.python).path
        return environments.installed(where).packages.get(package) or plan.engine_version or "unknown"
    except MoptError:
        return plan.engine_version or "unknown"


def _row(plan: Plan, room: Room, version: str, one: Compared, log: Path) -> LedgerRow:
    gpus = room.host.gpus or ()
    own = {s.name: s.value for s in plan.settings if s.source != "table"}
    return LedgerRow(
        quantity=one.quantity,
        measured=one.printed,
        predicted=one.predicted,
        unit=QUANTITIES[one.quantity],
        model=plan.model,
        gpu=plan.gpu or (gpus[0].name if gpus else (room.host.cpu.name or "CPU")),
        gpus=max(plan.gpus, 1),
        engine=plan.engine,
        version=version,
        scheme=plan.scheme,
        workload=plan.workload,
        settings=own,
        settings_digest=digest.of_noun(dataclasses.replace(plan, estimate=Estimate(), notes=())),
        host_digest=digest.of_noun(room.host),
        date=_now(),
        source=f"mopt serve, {log}",
    )


def _said(log: Path, from_byte: int) -> str:
    """What a log says from a place on: how it began, and its end."""
    try:
        with log.open("rb") as stream:
            stream.seek(from_byte)
            head = stream.read(HEAD_BYTES)
            read, size = stream.tell(), stream.seek(0, 2)
            stream.seek(max(read, size - TAIL_BYTES))
            return (head + stream.read(TAIL_BYTES)).decode("utf-8", "replace")
    except OSError:
        return ""


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")

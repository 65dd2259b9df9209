"""The stages of `optimize` as they are outside of tests: rooms joined by what they hand each other."""

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from model_optimizer import planner, report
from model_optimizer.bench.options import BenchOptions
from model_optimizer.bench.run import measure
from model_optimizer.bench.target import Target
from model_optimizer.bench.watched import Recording
from model_optimizer.core import (
    Artifact,
    Check,
    Engine,
    Finding,
    Host,
    HostError,
    Measurement,
    ModelSpec,
    Needs,
    Plan,
    Progress,
    Record,
    Scheme,
    Slo,
    Tool,
    Verdict,
    Workload,
    paths,
)
from model_optimizer.diagnose import explained
from model_optimizer.doctor import examine
from model_optimizer.planner import Options, Question
from model_optimizer.quantize import run as quantize
from model_optimizer.serve import ServerHandle, start
from model_optimizer.system import environments, files, making, models, telemetry
from model_optimizer.system import probe as probing
from model_optimizer.verify import format_engine
from model_optimizer.verify import texts as inputs

from .format import QUANTIZED, verify_format
from .optimize import Stages
from .verify import Case, Desk, verify_candidate

NEARLY_ALL = 0.95
"""Share of the workload's requests that calibration samples are as long as."""

MADE_ON_DEMAND = frozenset({"onnx"})
"""Environments that a run makes without being asked; others are used when they exist."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kit:
    """What discovery found."""

    engines: Mapping[str, Engine]
    schemes: Mapping[str, Scheme]
    tools: Mapping[str, Tool]
    checks: Mapping[str, Check]


@dataclass(frozen=True, slots=True, kw_only=True)
class Choices:
    """What the user narrowed down. `seconds` is how long each level of load is held."""

    engines: tuple[str, ...] = ()
    schemes: tuple[str, ...] = ()
    budget_bytes: int | None = None
    texts: Path | None = None
    seconds: float = 6.0


class Wiring:
    """Each method is one stage of the pipeline."""

    def __init__(self, kit: Kit, choices: Choices, model: ModelSpec) -> None:
        self._kit = kit
        self._choices = choices
        self._model = model
        self._bench = making.Bench(tools=kit.tools, schemes=kit.schemes, run=environments.run_worker)

    def stages(self) -> Stages:
        return Stages(
            probe=probing.probe,
            free_bytes=files.free_bytes,
            unchanged=_unchanged,
            explain=explained,
            examine=self._examine,
            checkpoint=models.checkpoint_artifact,
            options=self._options,
            needs=self._needs,
            make=self._make,
            lint=self._lint,
            verify=self._verify,
            serve=self._serve,
            measure=self._measure,
            pick=planner.pick,
            report=_report,
        )

    def _examine(self, host: Host) -> Sequence[Finding]:
        return examine(host, self._kit.checks)

    def _options(
        self, host: Host, model: ModelSpec, checkpoint: Artifact, workload: Workload, slo: Slo
    ) -> Options:
        question = Question(
            host=host,
            model=model,
            checkpoint=checkpoint,
            workload=workload,
            slo=slo,
            budget_bytes=self._choices.budget_bytes,
            engines=self._choices.engines,
            schemes=self._choices.schemes,
            environments=_environments(),
            on_request={
                name: tool.ENVIRONMENT
                for name, tool in self._kit.tools.items()
                if tool.ENVIRONMENT not in MADE_ON_DEMAND
            },
        )
        return planner.options(
            question,
            engines=self._kit.engines,
            schemes=self._kit.schemes,
            find_path=self._find_path(checkpoint),
        )

    def _find_path(self, checkpoint: Artifact) -> Callable[[str, str], tuple[str, ...] | None]:
        """Tools from the checkpoint to a format. Engines cast plain numbers themselves when they load."""
        plain = {
            name
            for name, scheme in self._kit.schemes.items()
            if scheme.weight_number == scheme.activation_number == "float"
        }

        by_tools = paths.finder(self._model, checkpoint, self._kit.tools)

        def find(scheme: str, form: str) -> tuple[str, ...] | None:
            if form == checkpoint.format and checkpoint.scheme in plain and scheme in plain:
                return ()
            return by_tools(scheme, form)

        return find

    def _needs(self, plans: Sequence[Plan], checkpoint: Artifact) -> Needs:
        """Of all steps to all plans; a step that plans share is made once."""
        hops = dict.fromkeys(hop for plan in plans for hop in making.chain_of(plan, checkpoint, self._bench))
        return paths.needs(tuple(hops), self._model, self._kit.tools, self._kit.schemes)

    def _make(self, plan: Plan, checkpoint: Artifact, folder: Path, progress: Progress) -> Artifact:
        folder.mkdir(exist_ok=True)
        bench = replace(self._bench, tools=self._calibrated(plan))
        return making.make_plan(plan, checkpoint, folder, bench, progress)

    def _calibrated(self, plan: Plan) -> Mapping[str, Tool]:
        """Tools that look at texts get the lengths of the workload, and few: verification says if they do."""
        work, scheme = plan.workload, self._kit.schemes[plan.scheme]
        longest = work.prompt_tokens.quantile(NEARLY_ALL)
        longest += work.output_tokens.quantile(NEARLY_ALL) if work.task == "generate" else 0
        memory = probing.available_memory_bytes()
        texts = quantize.calibration(
            quantize.Wanted(count=quantize.FEWEST, workload_tokens=longest), self._model, scheme, memory
        )
        choices = quantize.Choices(calibration=texts)
        return {name: quantize.configured(tool, choices) for name, tool in self._kit.tools.items()}

    def _lint(self, plan: Plan, made: Artifact) -> Verdict | None:
        if made.format not in QUANTIZED:
            return None
        return verify_format(
            Path(made.path),
            format_engine.Target(engine=plan.engine),
            engines=self._kit.engines,
            schemes=self._kit.schemes,
            scheme=made.scheme,
        )

    def _verify(
        self, plan: Plan, candidate: Artifact, reference: Artifact, desk: Desk, progress: Progress
    ) -> Verdict:
        case = Case(
            candidate=candidate,
            reference=reference,
            gate=self._kit.schemes[plan.scheme].gate,
            texts=inputs.read(self._choices.texts) if self._choices.texts else inputs.builtin(),
            served=(plan, self._kit.engines[plan.engine]),
        )
        return verify_candidate(case, desk, progress)

    @contextmanager
    def _serve(
        self, plan: Plan, artifact: Artifact, log: Path, progress: Progress
    ) -> Generator[ServerHandle]:
        engine = self._kit.engines[plan.engine]
        server = start(plan, artifact, engine=engine, log=log, progress=progress)
        try:
            yield server
        finally:
            server.stop()

    def _measure(self, server: ServerHandle, plan: Plan, progress: Progress) -> Measurement:
        workload = plan.workload
        target = Target(
            url=server.url,
            model=server.served_name,
            tokenizer=plan.checkpoint,
            vocab_size=self._model.vocab_size,
        )
        levels = sorted({1.0, float(workload.concurrency or 1)}) if workload.qps is None else ()
        options = BenchOptions(
            levels=tuple(levels), duration_s=None if workload.requests else self._choices.seconds
        )
        with Recording(target, pid=server.pid, gpus=plan.gpu is not None) as recording:
            found = measure(
                target,
                workload,
                plan.slo,
                progress=progress,
                sample_memory=telemetry.memory(server.pid),
                energy=telemetry.energy("cpu"),
                options=options,
                observe=recording.seen,
            )
        return recording.complete(found)


def _environments() -> frozenset[str]:
    """Those that are there, and those that may be made when they are first needed."""
    found = set(MADE_ON_DEMAND)
    for name in environments.names():
        try:
            environments.interpreter(name)
        except HostError:
            continue
        found.add(name)
    return frozenset(found)


def _unchanged(artifact: Artifact) -> bool:
    """The content is what its digest says; a folder or file that is gone is not."""
    path = Path(artifact.path)
    return path.exists() and models.content_digest(path) == artifact.digest


def _report(record: Record) -> dict[str, str]:
    return {"report.html": report.html(record), "report.md": report.markdown(record)}

"""From a checkpoint to a verified, served and measured model: the product in one page.

    doctor -> plan -> make -> verify -> serve and measure -> pick -> report

Every step leaves a file in the run folder before the next begins, and a step whose file is there is not
done again: that is all that resuming is. A candidate that fails is recorded with its reason and the run
goes on; without the reference there is nothing to compare with, so its failure ends the run.

An engine that loads the original checkpoint by itself can only be verified while it runs: it is started on
127.0.0.1 for its own verification, answers the verifier alone, and is stopped before anything is served.
"""

import dataclasses
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from model_optimizer.core import (
    Artifact,
    Candidate,
    Finding,
    Host,
    HostError,
    Measurement,
    ModelSpec,
    MoptError,
    Narrowed,
    Needs,
    Plan,
    Progress,
    Record,
    Run,
    Slo,
    Step,
    UsageError,
    Verdict,
    Workload,
    units,
)
from model_optimizer.core.record import Fate
from model_optimizer.planner import Options, Pick
from model_optimizer.system.runs import Outcome, Rejections, RunFolder

from .verify import Desk

REFERENCE = "reference"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stages:
    """What the pipeline is made of.

    `lint` reads what was made as the engine will, None for what is no quantized checkpoint. `serve` gives a
    running server that stops when the block ends. `free_bytes` is what the disk below a
    folder has left. `unchanged` says whether an artefact's content is what its digest says,
    `explain` adds to a tool's error what its log shows.
    """

    probe: Callable[[], Host]
    free_bytes: Callable[[Path], int | None]
    unchanged: Callable[[Artifact], bool]
    explain: Callable[[MoptError], MoptError]
    examine: Callable[[Host], Sequence[Finding]]
    checkpoint: Callable[[ModelSpec], Artifact]
    options: Callable[[Host, ModelSpec, Artifact, Workload, Slo], Options]
    needs: Callable[[Sequence[Plan], Artifact], Needs]
    make: Callable[[Plan, Artifact, Path, Progress], Artifact]
    lint: Callable[[Plan, Artifact], Verdict | None]
    verify: Callable[[Plan, Artifact, Artifact, Desk, Progress], Verdict]
    serve: Callable[[Plan, Artifact, Path, Progress], AbstractContextManager[Any]]
    measure: Callable[[Any, Plan, Progress], Measurement]
    pick: Callable[[Sequence[Candidate], Slo], Pick]
    report: Callable[[Record], dict[str, str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What a user asks. `command` is how they asked it, kept so that it can be asked again."""

    model: ModelSpec
    workload: Workload
    slo: Slo
    command: tuple[str, ...]
    version: str
    created: str
    narrowed: Narrowed = field(default_factory=Narrowed)


def optimize(folder: RunFolder, request: Request | None, stages: Stages, progress: Progress) -> Record:
    """Carry out a run, or what is left of one (`request` is then None). Returns the whole record.

    Raises HostError when the machine is not ready or lacks the room, NoFeasiblePlan when not even the
    reference can run, ToolError when the reference fails.
    """
    with folder.alone():
        if request is not None:
            _begin(folder, request)
        job = _Job(folder, stages, progress)
        job.plan()
        job.reopen_changed()
        job.make_all()
        job.verify_all()
        job.measure_all()
        return job.decide()


def _begin(folder: RunFolder, request: Request) -> None:
    folder.write(request.model, "model")
    folder.write(request.workload, "workload")
    folder.write(request.slo, "slo")
    folder.write(
        Run(
            command=request.command,
            version=request.version,
            created=request.created,
            model=request.model.name,
            narrowed=request.narrowed,
        ),
        "run",
    )


class _Job:
    def __init__(self, folder: RunFolder, stages: Stages, progress: Progress) -> None:
        self._folder = folder
        self._stages = stages
        self._progress = progress
        self._model = self._needed(ModelSpec, "model")
        self._checkpoint: Artifact | None = None

    # -- plan

    def plan(self) -> None:
        """Doctor and plan; afterwards the folder holds a plan for every candidate."""
        with self._step("doctor"):
            host = self._folder.read(Host, "host") or self._stages.probe()
            self._folder.write(host, "host")
            _refuse_broken(self._stages.examine(host))
        if self._folder.candidates():
            return
        with self._step("plan"):
            workload, slo = self._needed(Workload, "workload"), self._needed(Slo, "slo")
            found = self._stages.options(host, self._model, self.checkpoint, workload, slo)
            self._refuse_without_room(host, found)
            self._folder.write(Rejections(rows=found.rejected), "rejected")
            for plan in found.plans:
                self._folder.write(plan, f"candidates/{name_of(plan)}/plan")
            # Written last: a run has its candidates when it has its reference.
            self._folder.write(found.reference, f"candidates/{REFERENCE}/plan")

    @property
    def checkpoint(self) -> Artifact:
        if self._checkpoint is None:
            self._progress("reading the checkpoint", None)
            self._checkpoint = self._stages.checkpoint(self._model)
        return self._checkpoint

    def _refuse_without_room(self, host: Host, found: Options) -> None:
        """State what the run will write and hold at once, and stop when the machine lacks it."""
        needs = self._stages.needs(found.plans, self.checkpoint)
        disk, memory = needs.disk_bytes, needs.memory_bytes
        count = len(found.plans)
        what = f"{count} candidate{'s' * (count != 1)}"
        writes, holds = units.show_bytes(disk), units.show_bytes(memory)
        self._progress(f"{what}: will write about {writes} and hold up to {holds} of memory at once", None)
        for name, wanted, free in (
            ("disk space", disk, self._stages.free_bytes(self._folder.path)),
            ("memory", memory, host.memory_available_bytes),
        ):
            if free is not None and wanted > free:
                raise HostError(
                    f"there is too little {name} for this run",
                    cause=(f"{units.show_bytes(wanted)} are needed, {units.show_bytes(free)} are free",),
                    hint=("name fewer variants with --schemes", "make room and run it again"),
                    reference="no-room",
                )

    # -- make, verify, measure

    def reopen_changed(self) -> None:
        """What was made must still be what was verified; else its steps are done again."""
        for name in self._folder.candidates():
            artifact = self._folder.read_artifact(name)
            if artifact is None and not self._folder.has(f"candidates/{name}/artifact"):
                continue
            if artifact is None or not self._stages.unchanged(artifact):
                if name == REFERENCE:
                    raise UsageError(
                        "the checkpoint is gone or was changed since this run began",
                        cause=(self._model.path or self._model.name,),
                        hint=("start a new run: nothing of this one can be compared with it any more",),
                    )
                self._progress(f"{name}: its artefact is gone or was changed, so it is made again", None)
                self._folder.reopen(name)

    def make_all(self) -> None:
        for name in self._waiting():
            if self._folder.read_artifact(name):
                continue
            with self._candidate_step("make", name):
                plan = self._plan(name)
                made = (
                    self._stages.make(plan, self.checkpoint, self._folder.path / "artifacts", self._say(name))
                    if plan.path
                    else dataclasses.replace(self.checkpoint, scheme=plan.scheme)
                )
                self._folder.write_artifact(made, name)

    def verify_all(self) -> None:
        """Every candidate against the reference; what does not pass is never served. What the linter refuses
        is not even loaded."""
        for name in self._waiting():
            if name == REFERENCE:
                continue
            verdict = self._folder.read(Verdict, f"candidates/{name}/verdict-model")
            if verdict is None:
                with self._candidate_step("verify", name):
                    verdict = self._refused(name) or self._verdict(name)
            if verdict and verdict.outcome != "pass":
                why = verdict.because or f"verification was {verdict.outcome}"
                self._settle(name, "not-served", why)

    def _refused(self, name: str) -> Verdict | None:
        """What the linter says when it refuses an artefact."""
        verdict = self._stages.lint(self._plan(name), self._artifact(name))
        if verdict is None:
            return None
        verdict = dataclasses.replace(verdict, subject=name)
        self._folder.write(verdict, f"candidates/{name}/verdict-format")
        return verdict if verdict.outcome == "fail" else None

    def _verdict(self, name: str) -> Verdict:
        desk = Desk(scratch=self._folder.path / "verify", log=self._folder.log(f"verify-{name}"))
        artifact, reference = self._artifact(name), self._artifact(REFERENCE)
        verdict = self._stages.verify(self._plan(name), artifact, reference, desk, self._say(name))
        verdict = dataclasses.replace(verdict, subject=name, reference=REFERENCE)
        self._folder.write(verdict, f"candidates/{name}/verdict-model")
        return verdict

    def measure_all(self) -> None:
        for name in self._waiting():
            done = self._folder.read(Measurement, f"candidates/{name}/measurement")
            if done and not done.interrupted:
                continue
            with self._candidate_step("measure", name):
                plan = self._plan(name)
                log = self._folder.log(f"serve-{name}")
                with self._stages.serve(plan, self._artifact(name), log, self._say(name)) as server:
                    measured = self._stages.measure(server, plan, self._say(name))
                self._folder.write(measured, f"candidates/{name}/measurement")
                if measured.interrupted:
                    raise KeyboardInterrupt

    # -- decide

    def decide(self) -> Record:
        for name in self._waiting():
            self._settle(name, "reference" if name == REFERENCE else "served", None)
        record = self._folder.record()
        found = self._stages.pick(record.candidates, record.slo)
        if found.name and found.name != REFERENCE:
            self._settle(found.name, "winner", None)
        if found.name:
            self._folder.write(self._plan(found.name), "plan")
        run = self._needed(Run, "run")
        self._folder.write(dataclasses.replace(run, winner=found.name, because=found.because), "run")
        with self._step("report"):
            for file_name, text in self._stages.report(self._folder.record()).items():
                self._folder.write_text(file_name, text)
        return self._folder.record()

    # -- bookkeeping

    def _waiting(self) -> list[str]:
        """Candidates whose fate is open, the reference first."""
        names = self._folder.candidates()
        return [name for name in names if self._folder.candidate(name).fate == "waiting"]

    def _settle(self, name: str, fate: Fate, because: str | None) -> None:
        self._folder.write(Outcome(fate=fate, because=because), f"candidates/{name}/outcome")

    def _plan(self, name: str) -> Plan:
        return self._needed(Plan, f"candidates/{name}/plan")

    def _artifact(self, name: str) -> Artifact:
        found = self._folder.read_artifact(name)
        if found is None:
            raise UsageError(
                f"the artefact of `{name}` is gone from the run",
                hint=("start a new run; what a run made must stay while it goes on",),
            )
        return found

    def _needed(self, kind: type[Any], name: str) -> Any:
        noun = self._folder.read(kind, name)
        if noun is None:
            raise UsageError(f"`{self._folder.path}` has no {name}.json", hint=("start a new run",))
        return noun

    def _say(self, name: str) -> Progress:
        return lambda text, share=None: self._progress(f"{name}: {text}", share)

    @contextmanager
    def _candidate_step(self, verb: str, name: str) -> Generator[None]:
        """One step of one candidate. Its failure is the candidate's fate; the reference's ends the run."""
        try:
            with self._step(f"{verb} {name}"):
                yield
        except HostError:
            raise  # no room or no environment: the others would meet the same, and --resume goes on
        except MoptError as error:
            if name == REFERENCE:
                raise
            error = self._stages.explain(error)
            self._settle(name, "failed", "; ".join((error.message, *error.cause[:1])))
            self._progress(f"{name}: {verb} failed: {error.message}", None)

    @contextmanager
    def _step(self, name: str) -> Generator[None]:
        began = time.monotonic()
        self._mark(name, Step(state="running"))
        try:
            yield
        except BaseException as error:
            words = str(error) or type(error).__name__
            state = "failed" if isinstance(error, MoptError) else "waiting"
            self._mark(name, Step(state=state, seconds=time.monotonic() - began, because=words))
            raise
        self._mark(name, Step(state="done", seconds=round(time.monotonic() - began, 3)))

    def _mark(self, name: str, step: Step) -> None:
        run = self._needed(Run, "run")
        self._folder.write(dataclasses.replace(run, steps={**run.steps, name: step}), "run")


def name_of(plan: Plan) -> str:
    """A candidate's name in the run: engine and scheme."""
    return f"{plan.engine}-{plan.scheme}"


def _refuse_broken(findings: Sequence[Finding]) -> None:
    """Stop for what the candidates stand on. They run on the processor, in environments of their own, so a
    broken driver, container engine or Python package of this machine is none of their business."""
    failed = [finding for finding in findings if finding.status == "fail" and finding.layer == "machine"]
    if failed:
        raise HostError(
            "this machine is not ready",
            cause=tuple(f"{finding.check}: {finding.message}" for finding in failed),
            hint=tuple(finding.hint for finding in failed if finding.hint),
        )

"""The pipeline without engines: what is served, what is not, and what an interrupted run keeps."""

import dataclasses
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import pytest

from model_optimizer.core import (
    Artifact,
    Finding,
    Host,
    HostError,
    Measurement,
    MoptError,
    Needs,
    Plan,
    Progress,
    Record,
    Slo,
    ToolError,
    UsageError,
    Verdict,
)
from model_optimizer.flow.optimize import Request, Stages, optimize
from model_optimizer.flow.verify import Desk
from model_optimizer.planner import Options, pick
from model_optimizer.report import markdown
from model_optimizer.system import runs
from model_optimizer.testing import records

MIB = 1 << 20


class World:
    """Fake stages that remember what was asked of them, and fail where a test says so."""

    def __init__(self, tmp_path: Path) -> None:
        self.tmp_path = tmp_path
        self.calls: list[str] = []
        self.outcomes: dict[str, str] = {}
        self.break_at: dict[str, BaseException] = {}
        self.host = Host(memory_available_bytes=1 << 30)
        self.findings: tuple[Finding, ...] = (Finding(status="ok", message="fine", check="x"),)
        self.needs = Needs(disk_bytes=MIB, memory_bytes=MIB)
        self.free_bytes: int | None = 1 << 30
        self.changed: set[str] = set()
        self.lints: dict[str, Literal["pass", "fail", "undecided"]] = {}
        self.running = 0

    def note(self, call: str) -> None:
        self.calls.append(call)
        if call in self.break_at:
            raise self.break_at.pop(call)

    def stages(self) -> Stages:
        return Stages(
            probe=lambda: self.host,
            free_bytes=lambda path: self.free_bytes,
            unchanged=lambda artifact: artifact.path not in self.changed,
            explain=lambda error: error,
            examine=lambda host: self.findings,
            checkpoint=lambda model: records.artifact("fp32", 23 * MIB),
            options=lambda *nouns: Options(
                reference=records.plan("pytorch", "fp32"),
                plans=(
                    records.plan("onnxruntime", "int8_weight", ("genai",)),
                    records.plan("onnxruntime", "int4_rtn", ("genai",)),
                ),
                rejected=(),
            ),
            needs=lambda plans, checkpoint: self.needs,
            make=self.make,
            lint=self.lint,
            verify=self.verify,
            serve=self.serve,
            measure=self.measure,
            pick=pick,
            report=lambda record: {"report.md": markdown(record)},
        )

    def make(self, plan: Plan, source: Artifact, folder: Path, progress: Progress) -> Artifact:
        self.note(f"make {plan.scheme}")
        path = folder / plan.scheme
        path.mkdir(parents=True)
        return dataclasses.replace(records.artifact(plan.scheme, 6 * MIB), path=str(path))

    def lint(self, plan: Plan, made: Artifact) -> Verdict | None:
        if plan.scheme not in self.lints:
            return None
        outcome = self.lints[plan.scheme]
        return Verdict(layer="format", subject=made.path, outcome=outcome, because=f"the format is {outcome}")

    def verify(
        self, plan: Plan, artifact: Artifact, reference: Artifact, desk: Desk, progress: Progress
    ) -> Verdict:
        self.note(f"verify {plan.scheme}")
        return records.verdict(plan.scheme, self.outcomes.get(plan.scheme, "pass"), 0.99, 0.94)

    @contextmanager
    def serve(self, plan: Plan, artifact: Artifact, log: Path, progress: Progress) -> Iterator[str]:
        self.note(f"serve {plan.scheme}")
        self.running += 1
        try:
            yield plan.scheme
        finally:
            self.running -= 1

    def measure(self, server: Any, plan: Plan, progress: Progress) -> Measurement:
        self.note(f"measure {server}")
        speed = {"fp32": 50.0, "int8_weight": 120.0, "int4_rtn": 200.0}[plan.scheme]
        return records.measurement(speed, 10, 100 * MIB)


@pytest.fixture
def world(tmp_path: Path) -> World:
    # The checkpoint of the made-up record must exist, since an artefact that is gone is made again.
    return World(tmp_path)


@pytest.fixture
def run(world: World, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Record]:
    folder = runs.create(world.tmp_path / "runs", "tiny")
    checkpoint = world.tmp_path / "checkpoint"
    checkpoint.mkdir()
    request = Request(
        model=records.model(), workload=records.workload(), slo=Slo(), command=("mopt", "optimize", "m"),
        version="0.1.0", created="2026-11-30T14:00:00Z",
    )  # fmt: skip

    def go(*, resume: bool = False) -> Record:
        stages = dataclasses.replace(
            world.stages(),
            checkpoint=lambda model: dataclasses.replace(
                records.artifact("fp32", 23 * MIB), path=str(checkpoint)
            ),
        )
        return optimize(folder, None if resume else request, stages, lambda text, share=None: None)

    go.folder = folder  # type: ignore[attr-defined]
    return go


def fates(record: Record) -> dict[str, str]:
    return {candidate.name: candidate.fate for candidate in record.candidates}


def test_the_best_verified_candidate_wins(run: Callable[..., Record]) -> None:
    record = run()
    assert record.run.winner == "onnxruntime-int4_rtn"
    assert fates(record) == {
        "reference": "reference", "onnxruntime-int8_weight": "served", "onnxruntime-int4_rtn": "winner",
    }  # fmt: skip
    assert {step.state for step in record.run.steps.values()} == {"done"}
    folder = run.folder.path  # type: ignore[attr-defined]
    assert "Use `onnxruntime-int4_rtn`" in (folder / "report.md").read_text()
    assert runs.RunFolder(folder).read(Plan, "plan") == record.candidates[1].plan


@pytest.mark.parametrize("outcome", ["fail", "undecided"])
def test_what_failed_verification_is_never_served(
    run: Callable[..., Record], world: World, outcome: str
) -> None:
    world.outcomes["int4_rtn"] = outcome
    record = run()
    assert fates(record)["onnxruntime-int4_rtn"] == "not-served"
    assert "serve int4_rtn" not in world.calls
    assert record.run.winner == "onnxruntime-int8_weight"


def test_what_the_linter_refuses_is_not_even_loaded(run: Callable[..., Record], world: World) -> None:
    world.lints = {"int4_rtn": "fail", "int8_weight": "undecided"}
    record = run()
    refused, other = (
        next(c for c in record.candidates if c.name.endswith(s)) for s in ("int4_rtn", "int8_weight")
    )
    assert (refused.fate, refused.because) == ("not-served", "the format is fail")
    assert [v.layer for v in refused.verdicts] == ["format"]
    assert "verify int4_rtn" not in world.calls
    assert [v.layer for v in other.verdicts] == ["format", "model"], "what is only unknown goes on"
    assert record.run.winner == "onnxruntime-int8_weight"


def test_the_reference_is_not_verified_against_itself(run: Callable[..., Record], world: World) -> None:
    run()
    assert "verify fp32" not in world.calls
    assert "serve fp32" in world.calls


@pytest.mark.parametrize("step", ["make int8_weight", "verify int8_weight", "serve int8_weight"])
def test_a_candidate_that_breaks_does_not_stop_the_others(
    run: Callable[..., Record], world: World, step: str
) -> None:
    world.break_at[step] = ToolError("the tool broke", cause=("no more memory",))
    record = run()
    broken = next(c for c in record.candidates if c.plan.scheme == "int8_weight")
    assert (broken.fate, broken.because) == ("failed", "the tool broke; no more memory")
    assert record.run.winner == "onnxruntime-int4_rtn"


def test_a_tool_s_failure_is_explained_by_its_log(run: Callable[..., Record], world: World) -> None:
    world.break_at["make int8_weight"] = ToolError("the tool broke")
    stages = world.stages

    def explain(error: MoptError) -> MoptError:
        error.cause = ("its log shows a full disk",)
        return error

    world.stages = lambda: dataclasses.replace(stages(), explain=explain)  # type: ignore[method-assign]
    broken = next(c for c in run().candidates if c.plan.scheme == "int8_weight")
    assert broken.because == "the tool broke; its log shows a full disk"


def test_without_a_reference_there_is_no_run(run: Callable[..., Record], world: World) -> None:
    world.break_at["serve fp32"] = ToolError("it does not load")
    with pytest.raises(ToolError, match="it does not load"):
        run()


@pytest.mark.parametrize(
    "step", ["make int4_rtn", "verify int8_weight", "serve int8_weight", "measure int4_rtn"]
)
def test_an_interrupted_run_goes_on_where_it_stopped(
    run: Callable[..., Record], world: World, step: str
) -> None:
    world.break_at[step] = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        run()
    assert world.running == 0
    done = [call for call in world.calls if call != step and not call.startswith("serve")]
    world.calls.clear()
    record = run(resume=True)
    assert record.run.winner == "onnxruntime-int4_rtn"
    assert set(world.calls).isdisjoint(done), "what was done is not done again"
    assert {s.state for s in record.run.steps.values()} == {"done"}


def test_a_load_that_was_interrupted_stops_the_run_and_is_measured_again(
    run: Callable[..., Record], world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = World.measure

    def half(self: World, server: Any, plan: Plan, progress: Progress) -> Measurement:
        measured = whole(self, server, plan, progress)
        return dataclasses.replace(measured, interrupted=plan.scheme == "int8_weight")

    monkeypatch.setattr(World, "measure", half)
    with pytest.raises(KeyboardInterrupt):
        run()
    monkeypatch.setattr(World, "measure", whole)
    world.calls.clear()
    record = run(resume=True)
    assert [call for call in world.calls if call.startswith("measure")] == [
        "measure int8_weight",
    ]  # fmt: skip
    assert not any(c.measurement and c.measurement.interrupted for c in record.candidates)


def test_resuming_a_finished_run_does_nothing_but_report(run: Callable[..., Record], world: World) -> None:
    first = run()
    world.calls.clear()
    again = run(resume=True)
    assert world.calls == []
    assert again.run.winner == first.run.winner
    assert again.candidates == first.candidates


def test_a_machine_that_is_not_ready_is_refused_before_any_work(
    run: Callable[..., Record], world: World
) -> None:
    world.findings = (
        Finding(status="fail", message="too old", hint="get a new one", check="cpu", layer="machine"),
    )
    with pytest.raises(HostError) as caught:
        run()
    assert caught.value.cause == ("cpu: too old",)
    assert world.calls == []


@pytest.mark.parametrize("layer", ["driver", "cuda", "packages", "containers"])
def test_what_engines_on_the_processor_do_not_need_may_be_broken(
    run: Callable[..., Record], world: World, layer: str
) -> None:
    world.findings = (Finding(status="fail", message="broken", check="container_toolkit", layer=layer),)
    assert run().run.winner


@pytest.mark.parametrize(("field", "word"), [("disk_bytes", "disk space"), ("memory_bytes", "memory")])
def test_too_little_room_is_refused_with_the_numbers(
    run: Callable[..., Record], world: World, field: str, word: str
) -> None:
    world.needs = dataclasses.replace(world.needs, **{field: 9 << 30})
    with pytest.raises(HostError, match=f"too little {word}") as caught:
        run()
    assert "1 GiB are free" in caught.value.cause[0]
    assert world.calls == []


@pytest.mark.parametrize("how", ["gone", "changed"])
def test_an_artefact_that_is_not_what_was_verified_is_made_verified_and_measured_again(
    run: Callable[..., Record], world: World, how: str
) -> None:
    first = run()
    made = next(c.artifact for c in first.candidates if c.name == first.run.winner)
    assert made
    if how == "gone":
        shutil.rmtree(made.path)
    else:
        world.changed.add(made.path)
        shutil.rmtree(made.path)
    world.calls.clear()
    run(resume=True)
    assert world.calls == ["make int4_rtn", "verify int4_rtn", "serve int4_rtn", "measure int4_rtn"]


def test_a_checkpoint_that_changed_ends_the_run(run: Callable[..., Record], world: World) -> None:
    record = run()
    assert record.candidates[0].artifact
    world.changed.add(record.candidates[0].artifact.path)
    with pytest.raises(UsageError, match="checkpoint is gone or was changed"):
        run(resume=True)


def test_a_full_disk_ends_the_run_and_resuming_goes_on(run: Callable[..., Record], world: World) -> None:
    world.break_at["make int8_weight"] = HostError("the disk is full", reference="disk-full")
    with pytest.raises(HostError, match="disk is full"):
        run()
    assert fates(run(resume=True))["onnxruntime-int8_weight"] == "served"


def test_one_process_at_a_time_works_on_a_run(run: Callable[..., Record], world: World) -> None:
    folder = run.folder  # type: ignore[attr-defined]
    with folder.alone(), pytest.raises(HostError, match="another mopt is at work"):
        run()
    assert run().run.winner == "onnxruntime-int4_rtn"


def test_artefacts_are_recorded_relative_to_the_run(run: Callable[..., Record]) -> None:
    run()
    folder = run.folder.path  # type: ignore[attr-defined]
    text = (folder / "candidates/onnxruntime-int4_rtn/artifact.json").read_text()
    assert '"path": "artifacts/int4_rtn"' in text


def test_a_folder_that_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is not a run folder"):
        runs.open_run(tmp_path)


def test_two_runs_in_the_same_second_have_different_folders(tmp_path: Path) -> None:
    from datetime import UTC, datetime

    now = datetime(2026, 11, 30, 14, tzinfo=UTC)
    paths: Sequence[Path] = [runs.create(tmp_path, "org/Some Model", now=now).path for _ in range(3)]
    assert [path.name for path in paths] == [
        "20261130T140000Z-some-model",
        "20261130T140000Z-some-model-2",
        "20261130T140000Z-some-model-3",
    ]

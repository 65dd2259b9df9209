"""The layer `operators`: which operator is the first that computes something else, and in which step.

A worker holds every graph between the checkpoint and the candidate beside PyTorch in float32; what it found
becomes a verdict here.
"""

import dataclasses
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from model_optimizer.core import (
    Artifact,
    Comparison,
    Gpu,
    HostError,
    Progress,
    RunWorker,
    Scheme,
    ToolError,
    UsageError,
    Verdict,
    digest,
)
from model_optimizer.core.verdict import Outcome, worst
from model_optimizer.system import files as places

from . import engine as engines
from .chain import Step, links, steps
from .engine import Engine
from .limits import Limits, of_scheme

__all__ = [
    "Engine",
    "Limits",
    "Question",
    "Step",
    "engine_at",
    "engines",
    "steps",
    "verify_engine",
    "verify_operators",
]

ENVIRONMENT = "onnx"
JOB = "operators_compare"
PER_RUN = 8
"""Values that are looked at in one run: it bounds the memory beside the model's own."""

OF_THE_USER = ("kv-cache", "other-model", "pooling", "shapes-differ", "unknown-input")
"""What a worker refuses because the two do not belong together."""

METRICS = {
    "export": "step_export", "clean-up": "step_clean_up", "cast": "step_cast", "Q/DQ": "step_quantize",
    "engine": "step_engine",
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """`kept` is a folder with the graphs in between, where they are not beside the candidate. `cut_out` is
    the folder that gets the first bad operator; it is made when there is one, and replaced.
    """

    candidate: Artifact
    reference: Artifact
    schemes: Mapping[str, Scheme]
    texts: tuple[str, ...] = ()
    kept: Path | None = None
    cut_out: Path | None = None


class Suspect(msgspec.Struct, frozen=True):
    """A place whose error is its own; None where it could not be computed at all."""

    node: str | None
    operator: str
    module: str
    own: float | None
    total: float | None
    own_limit: float
    because: str | None = None


class Row(msgspec.Struct, frozen=True):
    """What was found of one step; errors are shares of the length of what is wanted."""

    name: str
    scheme: str
    truth: float | None
    added: float | None
    places: int
    looked: int
    median_own: float | None
    shortest: str | None
    suspects: tuple[Suspect, ...]


class Tokens(msgspec.Struct, frozen=True):
    checked: int
    different: int
    first: int | None


class Runtime(msgspec.Struct, frozen=True):
    added: float | None


class Answer(msgspec.Struct, frozen=True):
    """The worker's result."""

    feeds: tuple[str, ...]
    tokenizer: Tokens | None
    stages: tuple[Row, ...]
    runtime: Runtime | None
    first: int | None
    runs: int
    alone: int
    emulated: bool = False
    """BF16 was computed in 32 bits and rounded, as no processor computes in it."""


def verify_operators(question: Question, *, run: RunWorker, progress: Progress) -> Verdict:
    """Compare every step from the checkpoint to an ONNX candidate, down to the first operator that is wrong.

    Raises UsageError for a candidate that is no plain graph, and what `run` raises.
    """
    candidate, reference = question.candidate, question.reference
    if candidate.format != "onnx":
        raise UsageError(
            f"operators of `{candidate.format}` cannot be held against PyTorch's",
            hint=(
                "name a folder with model.onnx that `mopt convert --to onnx` made",
                "`mopt verify ... --layer model` compares what it answers",
            ),
        )
    _require_place(question.cut_out)
    found = steps(Path(candidate.path), candidate.scheme, question.kept)
    with tempfile.TemporaryDirectory(prefix="mopt-operators-") as place:
        request = {
            "reference": str(Path(reference.path).resolve()),
            "task": reference.task,
            "stages": [
                {"name": s.name, "scheme": s.scheme, "path": str(s.path.resolve())} for s in found
            ],
            "limits": _limits(found, question.schemes),
            "texts": list(question.texts),
            "per_run": PER_RUN,
            "out": place,
        }  # fmt: skip
        answer = msgspec.convert(_asked(run, request, progress), type=Answer)
        kept = _keep(Path(place), question.cut_out) if answer.first is not None else None
    return _verdict(question, answer, kept)


def _asked(run: RunWorker, request: Mapping[str, object], progress: Progress) -> Mapping[str, object]:
    """What the worker found. UsageError where it says that the two do not belong together."""
    try:
        return run(ENVIRONMENT, JOB, request, progress)
    except ToolError as error:
        if error.reference not in OF_THE_USER:
            raise
        raise UsageError(
            error.message, cause=error.cause, hint=error.hint, reference=error.reference
        ) from error


def _require_place(cut_out: Path | None) -> None:
    """Raises UsageError, before any work, where something else lies where the first bad operator goes."""
    if cut_out is None or not (cut_out.exists() or cut_out.is_symlink()):
        return
    if cut_out.is_dir() and ((cut_out / "about.json").is_file() or not any(cut_out.iterdir())):
        return
    raise UsageError(
        f"`{cut_out}` is there already, and no earlier run of this command made it",
        hint=("name another folder for the first bad operator with --cut-out",),
    )


def verify_engine(question: Question, engine: Engine, *, run: RunWorker, progress: Progress) -> Verdict:
    """The steps to the graph of an engine, and then the engine beside that graph, on the GPU of this machine.

    `question.candidate` is the graph. A graph that is wrong itself is answered first: what an engine makes of
    it says nothing more. Raises what `verify_operators` raises.
    """
    verdict = verify_operators(question, run=run, progress=progress)
    if verdict.outcome == "fail":
        return dataclasses.replace(
            verdict,
            because=f"{verdict.because}; the engine was built from this graph, and was not looked into",
        )
    known = question.schemes.get(engine.scheme)
    limit = of_scheme(engine.scheme, known.weight_bits if known else 0)
    graph = str((engine.graph / "model.onnx").resolve())
    with tempfile.TemporaryDirectory(prefix="mopt-engine-") as place:
        values, cut = Path(place) / "values", Path(place) / "cut"
        values.mkdir()
        cut.mkdir()
        asked = {
            "reference": str(Path(question.reference.path).resolve()), "task": question.reference.task,
            "graph": graph, "per_run": PER_RUN, "out": str(values),
        }  # fmt: skip
        size = str(run(ENVIRONMENT, "operators_wanted", asked, progress)["size"])
        request = {
            "graph": graph, "wanted": str(values), "flavour": engine.flavour, "scheme": engine.scheme,
            "limits": dataclasses.asdict(limit), "per_run": PER_RUN, "out": str(cut),
            "version": engine.version,
        }  # fmt: skip
        found = _engine_row(engine, request, run, progress)
        row = msgspec.convert(found["row"], type=Row)
        kept = _keep(cut, question.cut_out) if row.suspects and any(cut.iterdir()) else None
    return _with_engine(verdict, engine, row, size, kept)


def _engine_row(
    engine: Engine, request: Mapping[str, object], run: RunWorker, progress: Progress
) -> Mapping[str, object]:
    """What the worker found. HostError where the library here is not the one that built the engine."""
    try:
        return run(engine.environment, "operators_engine", request, progress)
    except ToolError as error:
        if error.reference != "engine-of-another-version":
            raise
        raise HostError(
            error.message, cause=error.cause, hint=error.hint, reference=error.reference
        ) from error


def _with_engine(verdict: Verdict, engine: Engine, row: Row, size: str, kept: Path | None) -> Verdict:
    """The engine's row behind those of the graph."""
    steps_ = [c for c in verdict.comparisons if c.metric != "own_error"]
    found = (*steps_, _step(row, [size]), *(_suspect(row, s) for s in row.suspects[:3]))
    because = "the engine computes what its graph does"
    if row.suspects:
        because = f"{_named(row.suspects[0])} is the first that is wrong, in step engine"
    if kept is not None:
        because += f"; cut out in {kept}"
    return dataclasses.replace(
        verdict,
        subject=str(engine.folder),
        outcome=worst(tuple(c.outcome for c in found)),
        comparisons=found,
        because=f"{because}, at {size}; before it: {verdict.because}",
    )


def engine_at(path: Path, *, gpus: Sequence[Gpu]) -> bool:
    """Whether a path is or holds an engine. Raises HostError where there is one and no GPU that runs it."""
    file = engines.file_of(path)
    if file is not None and gpus:
        engines.require_device(file, gpus)
    if file is not None and not gpus:
        raise HostError(
            f"`{file.name}` runs on a GPU, and this machine has none",
            hint=(
                "verify the graph that it was built from: keep it with `mopt convert ... --steps DIR`",
                "what the engine holds is in its own proof of content",
            ),
        )
    return file is not None


def _limits(found: Sequence[Step], schemes: Mapping[str, Scheme]) -> dict[str, dict[str, float]]:
    made: dict[str, dict[str, float]] = {}
    for step in found:
        known = schemes.get(step.scheme)
        made[step.scheme] = dataclasses.asdict(of_scheme(step.scheme, known.weight_bits if known else 0))
    return made


def _keep(place: Path, cut_out: Path | None) -> Path | None:
    """Move what was cut out to where it stays."""
    if cut_out is None:
        return None
    beside = cut_out.with_name(f".{cut_out.name}.new")
    with places.explained(cut_out):
        cut_out.parent.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(beside, ignore_errors=True)
        try:
            shutil.copytree(place, beside)
            if (cut_out / "about.json").is_file():  # what an earlier run of this command left
                shutil.rmtree(cut_out)
            beside.rename(cut_out)
        finally:
            shutil.rmtree(beside, ignore_errors=True)
    return cut_out


def _verdict(question: Question, answer: Answer, kept: Path | None) -> Verdict:
    comparisons = (
        *_tokens(answer.tokenizer),
        *(_step(row, answer.feeds) for row in answer.stages),
        *(_runtime(answer.runtime) if answer.runtime else ()),
        *(_suspect(row, s) for row in answer.stages for s in row.suspects[:3]),
    )
    outcome = worst(tuple(c.outcome for c in comparisons))
    return Verdict(
        layer="operators",
        subject=question.candidate.path,
        reference=question.reference.path,
        outcome=outcome,
        comparisons=comparisons,
        because="; ".join([_reason(answer), *_notes(question, answer, kept)]),
    )


def _reason(answer: Answer) -> str:
    if answer.first is not None:
        row = answer.stages[answer.first]
        bad = row.suspects[0]
        place = f"{_named(bad)} is the first that is wrong, in step {row.name}"
        if row.shortest and row.shortest != answer.feeds[0]:
            place += f"; inputs shorter than {row.shortest} show nothing"
        return place
    if answer.tokenizer and answer.tokenizer.different:
        return "the candidate's tokenizer cuts texts differently; its graph is right"
    names = ", ".join(row.name for row in answer.stages)
    return f"no operator is wrong in {names}, at inputs of {', '.join(answer.feeds)}"


def _notes(question: Question, answer: Answer, kept: Path | None) -> list[str]:
    notes: list[str] = []
    path = Path(question.candidate.path)
    chain = links(path if path.is_dir() else path.parent)
    if not chain:
        notes.append("nothing says how the candidate was made, so that its steps cannot be told apart")
    elif len(answer.stages) < len(chain):
        notes.append("graphs in between are not there: keep them with `mopt convert ... --steps DIR`")
    if chain and question.reference.digest and chain[0].made_from != question.reference.digest:
        # A description of the folder by its headers has another digest than its content.
        made = digest.of_path(Path(question.reference.path))
        if made != chain[0].made_from:
            notes.append("the candidate was made from another checkpoint than the reference")
    if answer.emulated:
        notes.append("BF16 was computed in 32 bits and every number rounded: processors have no BF16 kernels")
    if kept is not None:
        notes.append(f"cut out in {kept}, run it with `python {kept / 'run.py'}`")
    return notes


def _named(bad: Suspect) -> str:
    return f"{bad.operator or 'an operator'} `{bad.node}` of {bad.module or 'no module (pooling, the end)'}"


def _tokens(found: Tokens | None) -> tuple[Comparison, ...]:
    if found is None:
        return ()
    bad = found.different
    return (
        Comparison(
            metric="token_ids",
            got=1 - bad / found.checked,
            wanted="= 1",
            outcome="fail" if bad else "pass",
            where=f"text {(found.first or 0) + 1} is the first of {bad} that it cuts differently" if bad else
            "its own tokenizer cuts every text as the reference's does",
            samples=found.checked,
            because="the candidate's tokenizer is not the reference's" if bad else None,
        ),
    )  # fmt: skip


def _step(row: Row, feeds: Sequence[str]) -> Comparison:
    outcome: Outcome = "fail" if row.suspects else "pass"
    seen = f"{_share(row.added)} of the answer's length, {_share(row.truth)} beside PyTorch in 32 bits"
    if row.places:
        seen += f"; {row.looked} looks at {row.places} paired places"
    if row.median_own is not None:
        seen += f", half of the products alone within {row.median_own:.2g}"
    return Comparison(
        metric=METRICS.get(row.name, "step_several"),
        got=_finite(row.added),
        wanted="no operator wrong",
        outcome=outcome,
        where=f"{row.name}: {seen}",
        samples=len(feeds),
    )


def _runtime(found: Runtime) -> tuple[Comparison, ...]:
    return (
        Comparison(
            metric="step_runtime",
            got=_finite(found.added),
            wanted="reported",
            outcome="pass",
            where="ONNX Runtime's own rewriting while it loads the graph",
        ),
    )


def _suspect(row: Row, bad: Suspect) -> Comparison:
    inherited = "" if bad.total is None else f", {_share(bad.total)} with what it inherits"
    return Comparison(
        metric="own_error",
        got=_finite(bad.own),
        wanted=f"<= {bad.own_limit:g}" if bad.own_limit else "computed",
        outcome="fail",
        where=f"{_named(bad)}, step {row.name}: alone on the reference's inputs{inherited}",
        because=bad.because,
    )


def _finite(value: float | None) -> float | None:
    """None for what is not finite: JSON knows no infinity."""
    return None if value is None or value > 1e100 else value


def _share(value: float | None) -> str:
    return "not finite" if _finite(value) is None else f"{value:.2g}"

"""Verify what lies inside a candidate (layer `operators`) and how a server holds (layer `service`)."""

from dataclasses import dataclass, field
from pathlib import Path

from model_optimizer.core import Artifact, Host, Progress, Scheme, Slo, UsageError, Verdict
from model_optimizer.system import environments
from model_optimizer.verify import operators, subject
from model_optimizer.verify.texts import Texts

TEXTS = 40
"""Texts whose tokens are compared: any tokenizer that is another one differs within a few."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Inside:
    """What is asked of these two layers.

    `cut_out` is the folder for the first bad operator (default: beside where one works), `steps` the folder
    that `mopt convert --steps` filled. The rest is of a server: its model, the load, its limits, and how many
    requests a level has; `model` None means its first.
    """

    cut_out: Path | None = None
    steps: Path | None = None
    model: str | None = None
    concurrency: int = 8
    requests: int = 64
    slo: Slo = field(default_factory=Slo)


def verify_operators(
    candidate: Path,
    made: Artifact | None,
    reference: Artifact,
    inside: Inside,
    *,
    schemes: dict[str, Scheme],
    texts: Texts,
    progress: Progress,
) -> Verdict:
    """Layer `operators` of an ONNX artefact. Raises UsageError, ToolError and what an environment raises."""
    if made is None:
        raise UsageError(
            f"`{candidate}` is a checkpoint, which PyTorch runs itself: it has no other operators",
            hint=("name a folder of `mopt convert --to onnx`", "--layer model compares two checkpoints"),
        )
    question = _question(candidate, made, reference, inside, schemes, texts)
    return operators.verify_operators(question, run=environments.run_worker, progress=progress)


def _question(
    candidate: Path,
    made: Artifact,
    reference: Artifact,
    inside: Inside,
    schemes: dict[str, Scheme],
    texts: Texts,
) -> operators.Question:
    name = (candidate if candidate.is_dir() else candidate.parent).absolute().name
    return operators.Question(
        candidate=made,
        reference=reference,
        schemes=schemes,
        texts=tuple(sample.text for group in texts.groups("embed")[:TEXTS] for sample in group),
        kept=inside.steps,
        cut_out=inside.cut_out or Path(f"first-bad-of-{name}"),
    )


def engine_at(candidate: Path, host: Host) -> bool:
    """Whether this is an engine. Raises HostError where no GPU here runs it."""
    return operators.engine_at(candidate, gpus=host.gpus or ())


def verify_engine(
    candidate: Path,
    reference: Artifact,
    inside: Inside,
    *,
    schemes: dict[str, Scheme],
    texts: Texts,
    progress: Progress,
) -> Verdict:
    """Layer `operators` of an engine: its graph first, then the engine. Raises what those raise."""
    engine = operators.engines.read(candidate, inside.steps)
    graph = subject.read(engine.graph, task=reference.task, scheme=engine.scheme)
    assert graph is not None
    question = _question(candidate, graph, reference, inside, schemes, texts)
    return operators.verify_engine(question, engine, run=environments.run_worker, progress=progress)

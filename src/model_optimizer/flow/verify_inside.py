"""Verify what lies inside a candidate (layer `operators`) and how a server holds (layer `service`)."""

from dataclasses import dataclass, field
from pathlib import Path

from model_optimizer.core import Artifact, Host, Progress, Scheme, Slo, UsageError, Verdict
from model_optimizer.system import environments
from model_optimizer.verify import operators
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
    name = (candidate if candidate.is_dir() else candidate.parent).absolute().name
    question = operators.Question(
        candidate=made,
        reference=reference,
        schemes=schemes,
        texts=tuple(sample.text for group in texts.groups("embed")[:TEXTS] for sample in group),
        kept=inside.steps,
        cut_out=inside.cut_out or Path(f"first-bad-of-{name}"),
    )
    return operators.verify_operators(question, run=environments.run_worker, progress=progress)


def refuse_engines(candidate: Path, host: Host) -> None:
    """Raises HostError or UsageError for a file that only a GPU runs."""
    operators.refuse_engines(candidate, gpus=len(host.gpus or ()))

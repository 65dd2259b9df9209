"""The layer `model`: does the candidate answer as its reference does, on the same inputs?

Both models run in their own processes and leave small files of outputs; everything after that is
arithmetic on plain numbers in this process.
"""

import itertools
import json
import math
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from model_optimizer.core import (
    Artifact,
    Gate,
    Progress,
    RunWorker,
    Task,
    UsageError,
    Verdict,
    digest,
    plugins,
)
from model_optimizer.core.verdict import Layer

from . import free, outputs, scores, tokens, vectors
from .endpoint import Endpoint
from .judged import Judged, more_texts, outcome, token_ids
from .limits import DTYPES, FIRST, FREE_PROMPT, LOOKS, MAX_TEXTS, MAX_TOKENS, TOP
from .outputs import Outputs
from .texts import Group, Texts, builtin

READERS = "model_optimizer.verify.readers"
More = Callable[[Sequence[tuple[Outputs, Outputs]]], tuple[Judged, ...]]
"""Further comparisons of the answers that were drawn for a verdict."""

REVISION = 1
"""Raised when workers come to write other outputs, so that none kept from before are taken for theirs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What stays the same while texts are drawn."""

    candidate: Artifact | Endpoint
    reference: Artifact
    gate: Gate
    run: RunWorker
    scratch: Path
    progress: Progress
    max_tokens: int = MAX_TOKENS
    free_tokens: int = 0

    @property
    def task(self) -> Task:
        return self.reference.task  # pyright: ignore[reportReturnType]


def verify_model(
    candidate: Artifact | Endpoint,
    reference: Artifact,
    gate: Gate,
    *,
    run: RunWorker,
    scratch: Path,
    progress: Progress,
    texts: Texts | None = None,
    max_texts: int = MAX_TEXTS,
    max_tokens: int = MAX_TOKENS,
    free_tokens: int = 0,
    layer: Layer = "model",
    further: More | None = None,
) -> Verdict:
    """Compare a candidate with the checkpoint it was made from, on texts (the built-in ones when None).

    A checkpoint as candidate runs in PyTorch in the number type of its scheme, a server is asked over HTTP. A
    verdict that is undecided after the first texts draws as many more as would decide it, up to
    `max_texts` of what there is; texts are cut at `max_tokens`. Language models also continue texts by
    themselves for `free_tokens` tokens. `further` adds comparisons of its own. The
    reference's outputs stay in the folder `scratch`, so that the next candidate of the same reference does
    not pay for them. Raises UsageError when the two do not fit each
    other, and what `run` raises when a model cannot be run.
    """
    _check_pair(candidate, reference)
    question = Question(
        candidate=candidate,
        reference=reference,
        gate=gate,
        run=run,
        scratch=scratch,
        progress=progress,
        max_tokens=max_tokens,
        free_tokens=free_tokens,
    )
    scratch.mkdir(parents=True, exist_ok=True)
    texts = texts or builtin()
    groups = texts.groups(question.task)[:max_texts]
    stop = min(len(groups), FIRST[question.task])
    pairs: list[tuple[Outputs, Outputs]] = []
    found: tuple[Judged, ...] = ()
    drawn = 0
    for _look in range(LOOKS):
        pairs.append(answers(question, groups[drawn:stop]))
        drawn = stop
        found = _judge(question, pairs, groups[:drawn])
        if outcome(found) != "undecided" or drawn == len(groups):
            break
        # A quarter more than needed: the estimate itself moves with the new texts.
        wanted = more_texts(found)
        stop = len(groups) if wanted is None else min(len(groups), drawn + math.ceil(wanted * 1.25))
    if further and not any(j.comparison.metric == "finite" for j in found):
        found += further(pairs)
    return _verdict(question, found, drawn, texts, layer)


def run_reference(
    reference: Artifact,
    *,
    run: RunWorker,
    scratch: Path,
    progress: Progress,
    texts: Texts | None = None,
    max_texts: int = MAX_TEXTS,
    max_tokens: int = MAX_TOKENS,
    free_tokens: int = 0,
) -> None:
    """Leave in `scratch` what `verify_model` asks of the reference first.

    Called before a server is started, so that it need not share the machine with the reference.
    """
    scratch.mkdir(parents=True, exist_ok=True)
    task: Task = reference.task  # pyright: ignore[reportAssignmentType]
    groups = (texts or builtin()).groups(task)[:max_texts]
    files = _Files(scratch, reference, groups[: FIRST[task]], max_tokens, free_tokens)
    with files.samples():
        _run_reference(files, reference, task, run, progress)


def _check_pair(candidate: Artifact | Endpoint, reference: Artifact) -> None:
    if candidate.task != reference.task:
        raise UsageError(
            f"a {candidate.task} model cannot be compared with a {reference.task} model",
            hint=("name the checkpoint that the candidate was made from",),
        )


class _Files:
    """Where the workers find some texts and leave their outputs; the names of a reference's say whose."""

    def __init__(
        self,
        scratch: Path,
        reference: Artifact,
        groups: Sequence[Group],
        max_tokens: int,
        free_tokens: int = 0,
    ) -> None:
        self.max_tokens = max_tokens
        free = {"prompt": FREE_PROMPT, "tokens": free_tokens}
        self.free = free if free_tokens and reference.task == "generate" else None
        samples = [sample for group in groups for sample in group]
        self._lines = [
            json.dumps({"text": s.text} | ({"pair": s.pair} if s.pair is not None else {})) for s in samples
        ]
        key = digest.of_noun([REVISION, reference.digest, max_tokens, TOP, self.free, self._lines])[7:23]
        self.inputs = scratch / f"texts-{key}.jsonl"
        self.wanted = scratch / f"reference-{key}.safetensors"
        self.got = scratch / f"candidate-{key}.safetensors"

    @contextmanager
    def samples(self) -> Generator[None]:
        """The texts lie there while the block runs; afterwards only the reference's outputs do."""
        self.inputs.write_text("\n".join(self._lines) + "\n", encoding="utf-8")
        try:
            yield
        finally:
            self.inputs.unlink(missing_ok=True)
            self.got.unlink(missing_ok=True)


def answers(question: Question, groups: Sequence[Group]) -> tuple[Outputs, Outputs]:
    """The outputs of both models for some texts, the reference's from `scratch` when they are there."""
    files = _Files(question.scratch, question.reference, groups, question.max_tokens, question.free_tokens)
    with files.samples():
        _run_reference(files, question.reference, question.task, question.run, question.progress)
        reader = plugins.load(READERS, question.candidate.format)
        scheme = question.candidate.scheme
        request = {
            **_place(question.candidate),
            **_asked(question.task, files),
            "out": str(files.got.resolve()),
            "at": str(files.wanted.resolve()),
            "dtype": DTYPES.get(scheme, "float32"),
            "quantized": scheme not in DTYPES,
        }
        question.run(reader.ENVIRONMENT, reader.JOB, request, question.progress)
        return outputs.read(files.wanted), outputs.read(files.got)


def _run_reference(
    files: _Files, reference: Artifact, task: Task, run: RunWorker, progress: Progress
) -> None:
    if files.wanted.exists():
        return
    reader = plugins.load(READERS, reference.format)
    out = str(files.wanted.resolve())
    request = {**_place(reference), **_asked(task, files), "out": out, "at": None, "dtype": "float32"}
    run(reader.ENVIRONMENT, reader.JOB, request, progress)


def _asked(task: Task, files: _Files) -> dict[str, str | int | dict[str, int] | None]:
    """What the requests of all workers have in common."""
    return {
        "task": task,
        "samples": str(files.inputs.resolve()),
        "top_k": TOP,
        "max_tokens": files.max_tokens,
        "free": files.free,
    }


def _place(model: Artifact | Endpoint) -> dict[str, str | None]:
    """Where a worker finds the model."""
    if isinstance(model, Endpoint):
        return {"url": model.url, "served_name": model.served_name}
    return {"model": str(Path(model.path).resolve())}


def _judge(
    question: Question, pairs: Sequence[tuple[Outputs, Outputs]], groups: Sequence[Group]
) -> tuple[Judged, ...]:
    own = token_ids([candidate for _, candidate in pairs])
    match question.task:
        case "embed":
            return (*own, *vectors.judge(pairs, question.gate))
        case "rerank":
            return (*own, *scores.judge(pairs, _rows(groups), question.gate))
        case _:
            found = tokens.judge(pairs, question.gate)
            if any(j.comparison.metric == "finite" for j in found):
                return (*own, *found)
            return (*own, *found, *free.judge(pairs, question.gate))


def _rows(groups: Sequence[Group]) -> list[range]:
    """The rows of each group, all groups in a row."""
    ends = [0]
    for group in groups:
        ends.append(ends[-1] + len(group))
    return [range(first, last) for first, last in itertools.pairwise(ends)]


def _verdict(question: Question, found: Sequence[Judged], drawn: int, texts: Texts, layer: Layer) -> Verdict:
    result = outcome(found)
    more = more_texts(found) if result == "undecided" else None
    candidate = question.candidate
    return Verdict(
        layer=layer,
        subject=candidate.url if isinstance(candidate, Endpoint) else candidate.path,
        reference=question.reference.path,
        outcome=result,
        comparisons=tuple(j.comparison for j in found),
        because=f"{drawn} {texts.unit(question.task)} of {texts.source}; {_reason(found, more)}",
        more_samples=more,
    )


def _reason(found: Sequence[Judged], more: int | None) -> str:
    """The one sentence that says why."""
    bad = [j.comparison for j in found if j.comparison.outcome != "pass"]
    if not bad:
        return "every limit is reached"
    first = next((c for c in bad if c.outcome == "fail"), bad[0])
    if first.outcome == "fail":
        return f"{first.metric} is {first.got:.4g}, wanted {first.wanted}: {first.because or first.where}"
    low, high = first.interval or (math.nan, math.nan)
    ending = f"about {more} more would decide" if more else "no number of them is known to decide"
    return f"{first.metric} lies between {low:.4g} and {high:.4g}, wanted {first.wanted}: {ending}"

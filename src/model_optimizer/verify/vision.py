"""The layer `model` for models of images: boxes, masks and labels beside the original's."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from model_optimizer.core import Artifact, Progress, RunWorker, UsageError, Verdict

from .intervals import decide_mean, mean
from .judged import Judged, gated, more_texts, outcome, wrong

IMAGES = 24
LIMITS: Mapping[int, float] = {32: 0.999, 16: 0.98, 8: 0.9, 4: 0.8}
"""Least mean overlap (IoU) by the bits of weights. ASSUMED: detectors are judged at an IoU of 0.5 to 0.95."""

COSINES: Mapping[int, float] = {32: 0.9999, 16: 0.999, 8: 0.98, 4: 0.9}
"""Least mean cosine of a classifier's scores, which its likeliest label alone does not show: two classes that
changed places are seen only where one of them wins. ASSUMED; tiny models in 8 bits were seen at 0.9998."""


class Row(msgspec.Struct, frozen=True):
    """One picture; what a model does not have is None."""

    finite: bool
    boxes: float | None
    masks: float | None
    label: float | None
    scores: float | None = None


class Answer(msgspec.Struct, frozen=True):
    kind: str
    images: tuple[Row, ...]


def verify_vision(
    candidate: Artifact, reference: Artifact, *, weight_bits: int, run: RunWorker, progress: Progress
) -> Verdict:
    """Compare an ONNX graph with the checkpoint in PyTorch, on made-up pictures. Raises UsageError."""
    if candidate.format != "onnx":
        raise UsageError(
            f"a model of images as `{candidate.format}` cannot be compared",
            hint=("name a folder that `mopt convert --to onnx` made",),
        )
    request: dict[str, Any] = {
        "reference": str(Path(reference.path).resolve()),
        "model": str(Path(candidate.path).resolve()),
        "images": IMAGES,
    }
    answer = msgspec.convert(run("onnx", "outputs_vision", request, progress), type=Answer)
    found = judge(answer, LIMITS.get(weight_bits, LIMITS[4]), COSINES.get(weight_bits, COSINES[4]))
    result = outcome(found)
    bad = next((j.comparison for j in found if j.comparison.outcome != "pass"), None)
    reason = "every limit is reached" if bad is None else f"{bad.metric}: {bad.because or bad.where}"
    return Verdict(
        layer="model",
        subject=candidate.path,
        reference=reference.path,
        outcome=result,
        comparisons=tuple(j.comparison for j in found),
        because=f"{len(answer.images)} made-up pictures of several sizes; {reason}",
        more_samples=more_texts(found) if result == "undecided" else None,
    )


def judge(answer: Answer, overlap: float, cosine: float) -> tuple[Judged, ...]:
    """Mean overlaps with their intervals over pictures; one that is not finite leaves nothing to compare."""
    broken = [at for at, row in enumerate(answer.images) if not row.finite]
    if broken:
        text = f"{len(broken)} of {len(answer.images)} pictures give NaN, infinity or another shape"
        share = 1 - len(broken) / len(answer.images)
        where = f"picture {broken[0] + 1}"
        return (wrong("finite", share, "= 1", where=where, samples=len(answer.images), because=text),)
    found: list[Judged] = []
    for metric, limit, values in (
        ("boxes_iou", overlap, [row.boxes for row in answer.images if row.boxes is not None]),
        ("masks_iou", overlap, [row.masks for row in answer.images if row.masks is not None]),
        ("labels_same", overlap, [row.label for row in answer.images if row.label is not None]),
        ("scores_cosine", cosine, [row.scores for row in answer.images if row.scores is not None]),
    ):
        if values:
            interval = mean(values)
            least = min(range(len(values)), key=values.__getitem__)
            where = f"least {values[least]:.4g}, picture {least + 1}"
            decision = decide_mean(interval, limit)
            found.append(gated(metric, interval, limit, decision, where=where, samples=len(values)))
    return tuple(found)

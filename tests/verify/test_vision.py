"""Models of images: overlap of boxes and masks, without an engine."""

import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import model_optimizer.workers as workers
from model_optimizer.core import Artifact, UsageError, Verdict
from model_optimizer.verify.vision import verify_vision


def artifact(form: str = "onnx") -> Artifact:
    return Artifact(path="/m", format=form, scheme="fp16", task="vision", bytes=1, digest="sha256:0")


def verdict(rows: list[dict[str, Any]], form: str = "onnx", bits: int = 16) -> Verdict:
    def run(environment: str, job: str, request: Mapping[str, Any], progress: object) -> Mapping[str, Any]:
        assert (environment, job, Path(request["model"]).name) == ("onnx", "outputs_vision", "m")
        return {"kind": "segment", "images": rows}

    return verify_vision(artifact(form), artifact(), weight_bits=bits, run=run, progress=lambda _t, _s: None)


def row(boxes: float | None = 1.0, masks: float | None = 1.0, label: float = 1.0) -> dict[str, Any]:
    return {"finite": True, "boxes": boxes, "masks": masks, "label": label}


def test_masks_that_moved_fail_and_name_the_picture() -> None:
    found = verdict([*[row(masks=0.5)] * 11, row(masks=0.3)])
    outcomes = {c.metric: c.outcome for c in found.comparisons}
    assert outcomes == {"boxes_iou": "pass", "masks_iou": "fail", "labels_same": "pass"}
    assert found.because is not None and "picture 12" in found.because


def test_the_limit_follows_the_bits_and_a_classifier_has_labels_only() -> None:
    rows = [row(boxes=0.95, masks=0.95)] * 12
    assert (verdict(rows).outcome, verdict(rows, bits=8).outcome) == ("fail", "pass")
    found = verdict([row(None, None)] * 12)
    assert [c.metric for c in found.comparisons] == ["labels_same"]


def test_classes_that_never_win_are_looked_at_too() -> None:
    rows = [row(None, None) | {"scores": 0.9}] * 12
    assert {c.metric: c.outcome for c in verdict(rows).comparisons} == {
        "labels_same": "pass", "scores_cosine": "fail",
    }  # fmt: skip
    assert verdict(rows, bits=4).outcome == "pass"


def test_what_is_not_finite_fails_alone() -> None:
    found = verdict([row(), {"finite": False, "boxes": 0.0, "masks": 0.0, "label": 0.0}])
    assert [(c.metric, c.outcome) for c in found.comparisons] == [("finite", "fail")]


def test_other_formats_are_refused() -> None:
    with pytest.raises(UsageError, match="tensorrt_engine"):
        verdict([], "tensorrt_engine")


MASKS = """
import sys, numpy
sys.path.append(sys.argv[1])
from outputs_vision import masks_overlap as same
wide = numpy.linspace(-1, 1, 100).reshape(10, 10)
flat = 5 + 1e-3 * wide
print(same(wide, wide + 2e-3), same(wide, wide + 0.3), same(flat, flat[::-1]), same(flat, flat + 0.3))
"""


SCORES = """
import sys, numpy
sys.path.append(sys.argv[1])
from outputs_vision import compare
wanted = numpy.array([[9.0, 1, 2, 3]])
turned = numpy.array([[9.0, 1, 3, 2]])
for got in (wanted + 5, turned):
    print(*(compare([wanted], [got], segments=False, labels=4)[name] for name in ("label", "scores")))
"""


@pytest.mark.engine
def test_two_classes_that_changed_places_below_the_best(onnx_env_python: Path) -> None:
    words = [onnx_env_python, "-P", "-c", SCORES, Path(workers.__file__).parent]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    (label, same), (still, turned) = (map(float, line.split()) for line in done.stdout.splitlines())
    assert (label, still) == (1.0, 1.0)
    assert same > 0.999999 and turned < 0.99


@pytest.mark.engine
def test_points_that_the_original_hardly_decides_are_left_out(onnx_env_python: Path) -> None:
    """An untrained segmenter's masks are flat, and FP16 turned an eighth of their points."""
    words = [onnx_env_python, "-P", "-c", MASKS, Path(workers.__file__).parent]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    near, moved, turned, shifted = map(float, done.stdout.split())
    assert (near, turned, shifted) == (1.0, 1.0, 0.0)
    assert moved < 0.9

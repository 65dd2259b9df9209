"""Run a model of images as its checkpoint in PyTorch and as a graph in ONNX Runtime, on the same pictures.

Request: {reference, model (folder or .onnx file), images: how many}. Of a segmenter the BEST places that the
original scores highest are compared: boxes and masks by what they have in common over what they cover
together (IoU). Of a classifier, the likeliest label and the cosine of all scores. Result: {kind, images:
[{boxes, masks, label, scores, finite}]}.
"""

import sys
import warnings
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parent))
from _checkpoint import read_config
from _contract import fail, main, progress
from _onnx_feeds import _pixels as picture
from _operators_graph import Graph, RunFailed, fitted
from _operators_torch import Truth

BEST = 20
NEAR = 4e-3
"""Share of a mask's largest number below which FP16 may turn a point: four units in the last place of it."""
SIDES = ((64, 64), (96, 64), (64, 128), (128, 128))


def job(request: dict[str, Any]) -> dict[str, Any]:
    warnings.filterwarnings("ignore")
    source, path = Path(request["reference"]), Path(request["model"])
    config = read_config(source)
    graph = Graph(path if path.is_file() else path / "model.onnx")
    truth, session = Truth(source, "vision"), graph.session(plain=False)
    segments = config.get("model_type") == "yolo_seg"
    rows: list[dict[str, Any]] = []
    value = next(v for v in session.get_inputs())
    facts: dict[str, Any] = {"inputs": [{"name": value.name, "shape": list(value.shape)}]}
    facts |= {"size_step": 32, "pixel_range": [0, 1]} if segments else {}
    for number in range(int(request["images"])):
        progress("pictures", number / request["images"])
        feed = picture(facts, (1, *SIDES[number % len(SIDES)]), 1000 + number)
        wanted = truth.run({"pixel_values": feed[value.name]})[0]
        try:
            got = session.run(None, fitted(session, feed))
        except RunFailed as failed:
            fail("onnx-run", "the graph cannot be run on a picture", [str(failed)[:300]])
        rows.append(compare(wanted, got, segments=segments, labels=int(config.get("num_labels") or 1)))
    return {"kind": "segment" if segments else "classify", "images": rows}


def compare(wanted: Any, got: Any, *, segments: bool, labels: int) -> dict[str, Any]:
    import numpy

    if len(got) != len(wanted) or any(a.shape != b.shape for a, b in zip(got, wanted, strict=True)):
        return {"finite": False, "boxes": 0.0, "masks": 0.0, "label": 0.0}
    finite = all(bool(numpy.isfinite(a).all()) for a in got)
    if not finite:
        return {"finite": False, "boxes": 0.0, "masks": 0.0, "label": 0.0}
    if not segments:
        same = int(wanted[0][0].argmax()) == int(got[0][0].argmax())
        scores = cosine(wanted[0][0], got[0][0])
        return {"finite": True, "boxes": None, "masks": None, "label": float(same), "scores": scores}
    a, b = wanted[0][0], got[0][0]
    scores = a[4 : 4 + labels].max(axis=0)
    places = numpy.argsort(-scores, kind="stable")[:BEST]
    boxes = [overlap(a[:4, at], b[:4, at]) for at in places]
    masks = [
        masks_overlap(field(a[4 + labels :, at], wanted[1][0]), field(b[4 + labels :, at], got[1][0]))
        for at in places
    ]
    labelled = [float(a[4 : 4 + labels, at].argmax() == b[4 : 4 + labels, at].argmax()) for at in places]
    return {
        "finite": True,
        "boxes": float(numpy.mean(boxes)),
        "masks": float(numpy.mean(masks)),
        "label": float(numpy.mean(labelled)),
    }


def cosine(wanted: Any, got: Any) -> float:
    """Of all scores of a picture, about their mean: what is added to all of them changes no probability."""
    import numpy

    a, b = (numpy.asarray(x, dtype="float64").ravel() for x in (wanted, got))
    if a.size > 2:
        a, b = a - a.mean(), b - b.mean()
    lengths = float(numpy.linalg.norm(a) * numpy.linalg.norm(b))
    return float(a @ b) / lengths if lengths else float(numpy.array_equal(a, b))


def overlap(a: Any, b: Any) -> float:
    """IoU of two boxes given as centre and size."""
    low = [max(float(x[i] - x[i + 2] / 2) for x in (a, b)) for i in (0, 1)]
    high = [min(float(x[i] + x[i + 2] / 2) for x in (a, b)) for i in (0, 1)]
    both = max(0.0, high[0] - low[0]) * max(0.0, high[1] - low[1])
    all_ = float(a[2] * a[3] + b[2] * b[3]) - both
    return both / all_ if all_ > 0 else 1.0


def field(coefficients: Any, prototypes: Any) -> Any:
    """A mask before its threshold."""
    return (coefficients[:, None, None] * prototypes).sum(axis=0)


def masks_overlap(wanted: Any, got: Any) -> float:
    """IoU of two masks. One that covers all or nothing says nothing at 0: it is cut at its median.

    Points that the original hardly decides are left out; where it decides none, the numbers are compared.
    """
    import numpy

    level = 0.0 if 0.0 < float((wanted > 0).mean()) < 1.0 else float(numpy.median(wanted))
    near = NEAR * float(numpy.abs(wanted).max())
    clear = numpy.abs(wanted - level) > near
    if not clear.any():
        return float(numpy.abs(got - wanted).max() <= near)
    a, b = (wanted > level) & clear, (got > level) & clear
    together = int((a | b).sum())
    return int((a & b).sum()) / together if together else 1.0


if __name__ == "__main__":
    main(job)

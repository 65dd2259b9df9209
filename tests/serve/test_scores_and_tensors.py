"""Cross-encoders and models of images on ONNX Runtime behind our servers, in batches with strangers."""

import json
import math
import random
import subprocess
from pathlib import Path
from typing import Any

import pytest

import model_optimizer.workers as workers
from model_optimizer.convert import onnx_from_torch, onnx_vision
from model_optimizer.serve import ServerHandle

from .conftest import Serve, made
from .wire import at_once, get, post

pytestmark = pytest.mark.engine

MAKERS = Path(__file__).parents[1] / "workers"
PAIRS = ["because it rains", "an unrelated line " * 2, "no", "the sky is blue, the grass is green"]
INFER = "/v2/models/yolo/infer"


@pytest.fixture(scope="session")
def reranker(serving: Serve, onnx_env_python: Path, tmp_path_factory: pytest.TempPathFactory) -> ServerHandle:
    place = tmp_path_factory.mktemp("cross")
    subprocess.run([onnx_env_python, "-P", MAKERS / "make_models.py", place], check=True, timeout=300)
    graph = made(onnx_from_torch, place / "cross", place / "onnx" / "cross")
    return serving(graph, "onnx", "rerank", settings={"max_batch_size": "4"})


@pytest.fixture(scope="session")
def segmenter(
    serving: Serve, onnx_env_python: Path, tmp_path_factory: pytest.TempPathFactory
) -> ServerHandle:
    place = tmp_path_factory.mktemp("vision")
    script, helpers = MAKERS / "make_vision.py", Path(workers.__file__).parent
    subprocess.run([onnx_env_python, "-P", script, helpers, place], check=True, timeout=300)
    graph = made(onnx_vision, place / "yolo", place / "onnx" / "yolo")
    return serving(graph, "onnx", "vision", settings={"max_batch_size": "4"})


def rerank(server: ServerHandle, documents: list[str], **more: Any) -> tuple[int, dict[str, Any]]:
    return post(server.url, "/v1/rerank", {"query": "why is it wet?", "documents": documents, **more})


def scores(answer: dict[str, Any]) -> dict[int, float]:
    return {found["index"]: found["relevance_score"] for found in answer["results"]}


def test_documents_are_scored_and_sorted(reranker: ServerHandle) -> None:
    status, answer = rerank(reranker, PAIRS)
    assert status == 200, answer
    values = [found["relevance_score"] for found in answer["results"]]
    assert values == sorted(values, reverse=True) and all(0 < value < 1 for value in values)
    assert sorted(scores(answer)) == [0, 1, 2, 3]
    assert len(rerank(reranker, PAIRS, top_n=2)[1]["results"]) == 2


def test_a_score_does_not_depend_on_who_shares_the_batch(reranker: ServerHandle) -> None:
    together = scores(rerank(reranker, PAIRS)[1])
    alone = {place: scores(rerank(reranker, [text])[1])[0] for place, text in enumerate(PAIRS)}
    assert together == pytest.approx(alone, abs=1e-5)
    found = at_once(
        reranker.url, "/v1/rerank", [{"query": "why is it wet?", "documents": [text]} for text in PAIRS * 4]
    )
    for place, (status, answer) in enumerate(found):
        assert status == 200
        assert scores(answer)[0] == pytest.approx(alone[place % len(PAIRS)], abs=1e-5)


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"documents": []}, 400),
        ({"documents": "one"}, 400),
        ({"documents": ["x " * 200]}, 400),
        ({"model": "other"}, 404),
    ],
)
def test_a_bad_rerank_is_refused(reranker: ServerHandle, body: dict[str, Any], status: int) -> None:
    got, answer = post(reranker.url, "/v1/rerank", {"query": "q", "documents": ["a"], **body})
    assert got == status and answer["error"]["message"]


def image(height: int, width: int, seed: int) -> dict[str, Any]:
    dice = random.Random(seed)
    data = [round(dice.random(), 4) for _ in range(3 * height * width)]
    return {
        "inputs": [{"name": "pixel_values", "shape": [1, 3, height, width], "datatype": "FP32", "data": data}]
    }


def outputs(answer: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {found["name"]: found for found in answer["outputs"]}


def test_an_image_becomes_detections_and_prototypes(segmenter: ServerHandle) -> None:
    status, answer = post(segmenter.url, INFER, image(64, 96, 0))
    assert status == 200, answer
    found = outputs(answer)
    assert found["detections"]["shape"] == [1, 4 + 1 + 16, 8 * 12 + 4 * 6 + 2 * 3]
    assert found["prototypes"]["shape"] == [1, 16, 16, 24]
    assert all(math.isfinite(x) for x in found["detections"]["data"])


def test_images_of_several_sizes_at_once_get_their_own_answers(segmenter: ServerHandle) -> None:
    asked = [image(64, 64 + 32 * (seed % 2), seed) for seed in range(6)]
    alone = [outputs(post(segmenter.url, INFER, body)[1])["detections"] for body in asked]
    found = at_once(segmenter.url, INFER, asked)
    for wanted, (status, answer) in zip(alone, found, strict=True):
        assert status == 200
        got = outputs(answer)["detections"]
        assert got["shape"] == wanted["shape"]
        assert got["data"] == pytest.approx(wanted["data"], rel=1e-4, abs=1e-3)


def test_it_says_what_it_takes(segmenter: ServerHandle) -> None:
    status, body = get(segmenter.url, "/v2/models/yolo")
    assert status == 200
    assert json.loads(body)["inputs"] == [
        {"name": "pixel_values", "datatype": "FP32", "shape": [-1, 3, -1, -1]}
    ]
    assert json.loads(get(segmenter.url, "/v2/models/yolo/ready")[1])["ready"] is True


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"name": "other"}, "missing"),
        ({"datatype": "INT64"}, "not INT64"),
        ({"shape": [1, 3, 64, 70]}, "steps of 32"),
        ({"shape": [1, 4, 64, 64]}, "has the shape"),
        ({"shape": [1, 3, 64, 64], "data": [0.5]}, "has 1 numbers"),
        ({"data": ["x"]}, "no number"),
        ({"shape": [10**6, 3, 640, 640]}, "at most"),
    ],
)
def test_a_bad_tensor_is_refused(segmenter: ServerHandle, change: dict[str, Any], says: str) -> None:
    body = image(64, 64, 1)
    body["inputs"][0].update(change)
    status, answer = post(segmenter.url, INFER, body)
    assert status in (400, 413)
    assert says in answer["error"]["message"]

"""The embedding server on real engines."""

import array
import base64
import math
from pathlib import Path
from typing import Any

import pytest

from model_optimizer.core import ToolError
from model_optimizer.serve import ServerHandle

from .conftest import Serve, start_plain
from .wire import at_once, get, post

pytestmark = pytest.mark.engine

PATH = "/v1/embeddings"
TEXTS = ["a cat sat on the mat", "the weather is fine", "stocks fell " * 20, "cat", "a kitten sat on a rug"]


@pytest.fixture(scope="session")
def onnx(serving: Serve, minilm_onnx: Path) -> ServerHandle:
    return serving(minilm_onnx, "onnx", "embed", settings={"max_batch_size": "4"})


@pytest.fixture(scope="session")
def torch(serving: Serve, minilm: Path) -> ServerHandle:
    return serving(minilm, "safetensors", "embed")


@pytest.fixture(params=["onnx", "torch"])
def server(request: pytest.FixtureRequest) -> ServerHandle:
    return request.getfixturevalue(request.param)


def answer(server: ServerHandle, given: Any, **more: Any) -> dict[str, Any]:
    status, found = post(server.url, PATH, {"input": given, **more})
    assert status == 200, found
    return found


def vector(server: ServerHandle, given: Any) -> list[float]:
    (only,) = answer(server, given)["data"]
    return only["embedding"]


def dot(a: list[float], b: list[float]) -> float:
    return sum(x * y for x, y in zip(a, b, strict=True))


def cosine(a: list[float], b: list[float]) -> float:
    return dot(a, b) / math.sqrt(dot(a, a) * dot(b, b))


def test_both_backends_give_the_same_vectors(onnx: ServerHandle, torch: ServerHandle) -> None:
    for text in TEXTS:
        assert cosine(vector(onnx, text), vector(torch, text)) > 0.99999


def test_vectors_mean_something_and_have_length_one(server: ServerHandle) -> None:
    cat, weather, kitten = (vector(server, TEXTS[i]) for i in (0, 1, 4))
    assert cosine(cat, kitten) > cosine(cat, weather) + 0.2
    assert math.isclose(dot(cat, cat), 1, rel_tol=1e-4)
    assert len(cat) == 384


def test_a_list_keeps_its_order(server: ServerHandle) -> None:
    found = answer(server, TEXTS)
    assert [d["index"] for d in found["data"]] == list(range(len(TEXTS)))
    assert found["object"] == "list"
    assert found["model"] == server.served_name
    for text, data in zip(TEXTS, found["data"], strict=True):
        assert cosine(vector(server, text), data["embedding"]) > 0.99999


def test_usage_counts_tokens(server: ServerHandle) -> None:
    one = answer(server, "cat")["usage"]
    assert one == {"prompt_tokens": 3, "total_tokens": 3}
    assert answer(server, ["cat", "cat"])["usage"]["prompt_tokens"] == 6


def test_base64_is_the_same_vector(server: ServerHandle) -> None:
    packed = answer(server, "cat", encoding_format="base64")["data"][0]["embedding"]
    assert array.array("f", base64.b64decode(packed)).tolist() == pytest.approx(vector(server, "cat"))


def test_token_ids_are_an_input_too(server: ServerHandle) -> None:
    assert cosine(vector(server, [101, 4937, 102]), vector(server, "cat")) > 0.99999


def test_requests_at_once_are_answered_as_if_alone(server: ServerHandle) -> None:
    alone = [vector(server, text) for text in TEXTS]
    found = at_once(server.url, PATH, [{"input": text} for text in TEXTS * 4])
    for (status, body), wanted in zip(found, alone * 4, strict=True):
        assert status == 200
        assert cosine(body["data"][0]["embedding"], wanted) > 0.99999


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b"{", 400, "invalid_request"),
        ({}, 400, "invalid_request"),
        ({"input": []}, 400, "inputs"),
        ({"input": ["a"] * 2049}, 400, "inputs"),
        ({"input": "cat " * 400}, 400, "context_length_exceeded"),
        ({"input": [10**9]}, 400, "invalid_token"),
        ({"input": [[]]}, 400, "empty_prompt"),
        ({"input": "a", "model": "another"}, 404, "model_not_found"),
        ({"input": "a", "dimensions": 3}, 400, "unsupported"),
        ({"input": "a", "encoding_format": "int7"}, 400, "invalid_request"),
    ],
)
def test_what_cannot_be_answered_is_an_error_in_openais_shape(
    onnx: ServerHandle, body: Any, status: int, code: str
) -> None:
    found, said = post(onnx.url, PATH, body)
    assert (found, said["error"]["code"]) == (status, code)
    assert set(said["error"]) == {"message", "type", "param", "code"}


def test_health_models_and_nothing_more(onnx: ServerHandle) -> None:
    assert get(onnx.url, "/health")[0] == 200
    assert b'"max_model_len":256' in get(onnx.url, "/v1/models")[1]
    assert get(onnx.url, "/docs")[0] == 404
    assert get(onnx.url, "/openapi.json")[0] == 404


def test_a_broken_graph_is_said_and_leaves_nothing(minilm_onnx: Path, tmp_path: Path) -> None:
    import shutil

    broken = tmp_path / "broken"
    shutil.copytree(minilm_onnx, broken)
    (broken / "model.onnx").write_bytes(b"this is no graph")
    with pytest.raises(ToolError, match=r"ONNX Runtime cannot load `broken/model\.onnx`") as caught:
        start_plain(broken, "onnx", "embed", tmp_path / "l.log")
    assert caught.value.reference == "onnx-unreadable"


def test_a_key_is_asked_for(minilm_onnx: Path, tmp_path: Path) -> None:
    with start_plain(minilm_onnx, "onnx", "embed", tmp_path / "l.log", key="a-secret-key") as server:
        assert post(server.url, PATH, {"input": "a"})[0] == 401
        assert post(server.url, PATH, {"input": "a"}, key="a-secret-key")[0] == 200
        assert get(server.url, "/health")[0] == 200

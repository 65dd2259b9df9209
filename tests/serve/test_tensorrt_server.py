"""Engines of TensorRT behind our servers, on a stand-in with its documented classes; no device was there."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import model_optimizer.workers as workers
from model_optimizer.convert import onnx_from_torch, onnx_vision
from model_optimizer.core import Gpu, Host, Launch, ToolError, plugins
from model_optimizer.serve import ServerHandle, Wish, resolve, start
from model_optimizer.system import files, processes
from model_optimizer.system.environments import worker
from model_optimizer.system.processes import Running

from .conftest import Serve, made, quiet
from .test_embed_server import cosine
from .test_scores_and_tensors import INFER, image, outputs, rerank, scores
from .wire import at_once, get, post

pytestmark = pytest.mark.engine

HERE = Path(__file__).parent
MAKERS = HERE.parent / "workers"
VERSION = "11.4.0"
NOTHING = Wish()
HOST = Host(gpus=(Gpu(name="card", compute_capability=(8, 9)),))
PROFILES: dict[str, list[dict[str, tuple[int, int, int]]]] = {
    "embed": [
        {"batch": (1, 2, 4), "sequence": (1, 8, 16)},
        {"batch": (1, 2, 2), "sequence": (17, 32, 100)},
    ],
    "rerank": [{"batch": (2, 2, 4), "sequence": (24, 32, 64)}],
    "vision": [{"batch": (1, 1, 2), "height": (64, 64, 128), "width": (64, 64, 96)}],
}

TEXTS = ["a cat", "the weather is fine today", "no", "stocks fell again " * 2]
Play = Callable[..., Any]


@pytest.fixture(scope="session")
def play(onnx_env_python: Path, tmp_path_factory: pytest.TempPathFactory) -> Play:
    """A job of the stand-in, to its end; its result."""

    def run(job: str, request: dict[str, Any]) -> Any:
        place = tmp_path_factory.mktemp(job)
        asked, answer = place / "request.json", place / "result.json"
        asked.write_text(json.dumps(request))
        command = [*_command(onnx_env_python, asked, answer), job, VERSION]
        done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
        assert done.returncode == 0, done.stderr[-3000:]
        return json.loads(answer.read_text())

    return run


def _command(python: Path, asked: Path, answer: Path) -> list[str]:
    script = HERE / "play_tensorrt.py"
    return [str(python), "-P", str(script), str(asked), str(answer), str(Path(workers.__file__).parent)]


@pytest.fixture(scope="session")
def graphs(onnx_env_python: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    place = tmp_path_factory.mktemp("graphs")
    helpers = Path(workers.__file__).parent
    subprocess.run([onnx_env_python, "-P", MAKERS / "make_models.py", place], check=True, timeout=600)
    subprocess.run(
        [onnx_env_python, "-P", MAKERS / "make_vision.py", helpers, place], check=True, timeout=600
    )
    return {
        "embed": made(onnx_from_torch, place / "bert", place / "onnx" / "bert"),
        "rerank": made(onnx_from_torch, place / "cross", place / "onnx" / "cross"),
        "vision": made(onnx_vision, place / "yolo", place / "onnx" / "yolo"),
    }


@pytest.fixture(scope="session")
def built(graphs: dict[str, Path], play: Play, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    place = tmp_path_factory.mktemp("engines")
    common = {"scheme": "fp32", "flavour": "tensorrt", "allow_wrong_precision": True}
    folders = {task: place / graph.name for task, graph in graphs.items()}
    play(
        "build",
        {
            "builds": [
                {**common, "source": str(graphs[task]), "out": str(folders[task]), "profiles": PROFILES[task]}
                for task in graphs
            ]
        },
    )
    return folders


def begin(
    folder: Path, python: Path, log: Path, version: str = VERSION, wish: Wish = NOTHING
) -> ServerHandle:
    """`mopt serve FOLDER` on a machine with a GPU, with the stand-in in the worker's place."""
    engines = plugins.load_all("model_optimizer.engines")
    order = resolve(str(folder), wish, HOST, engines=engines, schemes={})

    def play_worker(launch: Launch, log: Path) -> Running:
        assert launch.job is not None and launch.environment == "tensorrt"
        asked, answer = log.with_suffix(".request.json"), log.with_suffix(".result.json")
        files.write_atomic(asked, json.dumps(launch.request).encode())
        given = worker.variables("onnx", python, extra=launch.env)
        command = [*_command(python, asked, answer), launch.job, version]
        running = processes.start(command, log=log, env=given)
        running.result = answer
        return running

    return start(
        order.plan,
        order.artifact,
        engine=engines["tensorrt"],
        log=log,
        progress=quiet,
        start_process=play_worker,
    )


@pytest.fixture(scope="session")
def server(built: dict[str, Path], onnx_env_python: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    held: dict[str, ServerHandle] = {}

    def of(task: str) -> ServerHandle:
        if task not in held:
            held[task] = begin(built[task], onnx_env_python, tmp_path_factory.mktemp("serve") / "serve.log")
        return held[task]

    yield of
    for handle in held.values():
        handle.stop()


def test_vectors_are_those_of_the_graph(server: Any, serving: Serve, graphs: dict[str, Path]) -> None:
    plain = serving(graphs["embed"], "onnx", "embed", settings={"max_batch_size": "4"})
    wanted, got = (
        [one["embedding"] for one in post(url, "/v1/embeddings", {"input": TEXTS})[1]["data"]]
        for url in (plain.url, server("embed").url)
    )
    assert all(cosine(a, b) > 0.99999 for a, b in zip(wanted, got, strict=True))
    together = at_once(server("embed").url, "/v1/embeddings", [{"input": text} for text in TEXTS * 3])
    for (status, body), vector in zip(together, wanted * 3, strict=True):
        assert status == 200
        assert cosine(body["data"][0]["embedding"], vector) > 0.99999


def test_a_text_longer_than_the_profiles_is_refused(server: Any) -> None:
    status, body = post(server("embed").url, "/v1/embeddings", {"input": "cat " * 120})
    assert (status, body["error"]["code"]) == (400, "context_length_exceeded")
    assert "100 tokens" in body["error"]["message"]
    models = json.loads(get(server("embed").url, "/v1/models")[1])["data"]
    assert (models[0]["max_model_len"], models[0]["engine"]) == (100, f"tensorrt {VERSION}")


def test_fewer_and_shorter_pairs_than_the_profile_takes_are_filled_up(
    server: Any, serving: Serve, graphs: dict[str, Path]
) -> None:
    plain = serving(graphs["rerank"], "onnx", "rerank", settings={"max_batch_size": "4"})
    for documents in (["no"], ["no", "because it rains", "an unrelated line", "yes", "maybe", "the sky"]):
        wanted, got = (scores(rerank(which, documents)[1]) for which in (plain, server("rerank")))
        assert got == pytest.approx(wanted, abs=1e-5)


def test_images_are_those_of_the_graph_and_other_sizes_are_refused(
    server: Any, serving: Serve, graphs: dict[str, Path]
) -> None:
    plain = serving(graphs["vision"], "onnx", "vision")
    asked = [image(64 + 32 * (seed % 2), 64, seed) for seed in range(5)]
    found = at_once(server("vision").url, INFER, asked)
    for body, (status, answer) in zip(asked, found, strict=True):
        assert status == 200, answer
        wanted = outputs(post(plain.url, INFER, body)[1])["detections"]
        assert outputs(answer)["detections"]["data"] == pytest.approx(wanted["data"], rel=1e-4, abs=1e-3)
    status, answer = post(server("vision").url, INFER, image(64, 128, 1))
    assert status == 400
    assert "pixel_values 1x3x64x64 to 2x3x128x96" in answer["error"]["message"]
    described = json.loads(get(server("vision").url, "/v2/models/yolo")[1])
    assert described["platform"] == "tensorrt_plan"
    assert described["inputs"] == [{"name": "pixel_values", "datatype": "FP32", "shape": [-1, 3, -1, -1]}]


def test_an_input_runs_in_the_narrowest_profile_in_parts_that_it_takes(
    built: dict[str, Path], play: Play
) -> None:
    said = play("ask", {"model": str(built["embed"]), "shapes": [[3, 10], [5, 20], [9, 16], [1, 101]]})
    short, long, many, outside = said["found"]
    assert (short["rows"], short["used"]) == (3, ["profile 0: input_ids (3, 10)"])
    assert (long["rows"], long["used"]) == (
        5,
        [f"profile 1: input_ids ({rows}, 20)" for rows in (2, 2, 1)],
    )
    assert (many["rows"], len(many["used"])) == (9, 3)
    assert outside["rows"][0] == "outside-profiles"
    assert "input_ids 1 x 101" in outside["rows"][1] and "2x100" in outside["rows"][2]
    assert said["held"] > 0 and said["left"] == 0
    assert said["filled"] == [3, 20]


def test_an_engine_of_another_version_names_both(
    built: dict[str, Path], onnx_env_python: Path, tmp_path: Path
) -> None:
    with pytest.raises(ToolError) as caught:
        begin(built["embed"], onnx_env_python, tmp_path / "serve.log", "10.16.1")
    assert caught.value.reference == "engine-of-another-version"
    assert f"TensorRT {VERSION}, 10.16.1 is installed" in caught.value.message


def test_an_engine_that_carries_its_runtime_runs_only_where_it_is_trusted(
    graphs: dict[str, Path],
    play: Play,
    onnx_env_python: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MOPT_TRUST_ENGINE_CODE", "1")  # a word for every start of a shell is no trust
    one = {
        "scheme": "fp32", "flavour": "tensorrt", "allow_wrong_precision": True, "version_compatible": True,
        "source": str(graphs["embed"]), "out": str(tmp_path / "engine"), "profiles": PROFILES["embed"],
    }  # fmt: skip
    play("build", {"builds": [one]})
    with pytest.raises(ToolError, match="by code that it holds") as caught:
        begin(tmp_path / "engine", onnx_env_python, tmp_path / "serve.log")
    assert "--set allow_engine_code=1" in caught.value.hint[0]
    trusting = Wish(settings={"allow-engine-code": "1"})
    running = begin(tmp_path / "engine", onnx_env_python, tmp_path / "serve.log", wish=trusting)
    running.stop()


def test_a_broken_engine_says_what_tensorrt_said(
    built: dict[str, Path], onnx_env_python: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "broken"
    folder.mkdir()
    for path in built["embed"].iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    (folder / "model.engine").write_bytes(b"\xff not an engine")
    with pytest.raises(ToolError) as caught:
        begin(folder, onnx_env_python, tmp_path / "serve.log")
    assert caught.value.reference == "engine-refused"
    assert any("Magic tag" in cause for cause in caught.value.cause)

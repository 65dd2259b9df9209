"""All three families from PyTorch through ONNX to engines for three GPUs: each step proves itself, faults are caught."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import model_optimizer.workers as workers
from model_optimizer.core import MoptError
from model_optimizer.system import environments

pytestmark = pytest.mark.engine

WORKERS = Path(workers.__file__).parent
HERE = Path(__file__).parent
FAMILIES = {"bert": "embed", "lm": "generate", "resnet": "vision", "yolo": "vision"}
JOBS = {"embed": "onnx_export", "generate": "onnx_prefill", "vision": "onnx_vision"}
TARGETS = ["8.6", "8.9", "12.0"]
PROFILES = {
    "bert": {"batch": [1, 4, 8], "sequence": [1, 32, 64]},
    "lm": {"batch": [1, 4, 8], "sequence": [1, 32, 64]},
    "resnet": {"batch": [1, 4, 8]},
    "yolo": {"batch": [1, 2, 4], "height": [64, 128, 256], "width": [64, 128, 256]},
}
Answers = dict[str, Any]


@pytest.fixture(scope="module")
def rtx_python() -> Path:
    import os

    if os.environ.get("MOPT_TEST_NO_ENGINES") == "1":
        pytest.skip("MOPT_TEST_NO_ENGINES=1: no `tensorrt_rtx` environment is made or used")
    try:
        return environments.ensure("tensorrt_rtx", progress=lambda _text, _share: None).path
    except MoptError as error:
        pytest.fail("\n".join([error.message, *error.cause, *error.hint]))


@pytest.fixture(scope="module")
def graphs(
    models: Path, drive: Callable[..., Any], onnx_env_python: Path, tmp_path_factory: pytest.TempPathFactory
) -> Answers:
    """Every graph of this file, made in one process: answers by name, folders below `out`."""
    out = tmp_path_factory.mktemp("graphs")
    environment(onnx_env_python, HERE / "make_vision.py", WORKERS, out / "vision")
    jobs: dict[str, dict[str, Any]] = {}
    for name, task in FAMILIES.items():
        source = out / "vision" / name if task == "vision" else models / name
        jobs[name] = job(JOBS[task], source, out / name, task=task, opset=20)
        jobs[f"{name}-clean"] = job("onnx_clean", out / name, out / f"{name}-clean")
        jobs[f"{name}-fp16"] = job("onnx_cast", out / f"{name}-clean", out / f"{name}-fp16", scheme="fp16")
        jobs[f"{name}-int8"] = job(
            "onnx_qdq",
            out / f"{name}-clean",
            out / f"{name}-int8",
            scheme="int8",
            rest="fp16",
            least_cosine=0.9,
        )
    jobs["bert-bf16"] = job("onnx_cast", out / "bert-clean", out / "bert-bf16", scheme="bf16")
    jobs["bert-fp8"] = job(
        "onnx_qdq", out / "bert-clean", out / "bert-fp8", scheme="fp8", rest="fp16", least_cosine=0.9
    )
    jobs["bert-int4"] = job(
        "onnx_qdq", out / "bert-clean", out / "bert-int4", scheme="int4_rtn", rest="fp16", least_cosine=0.8
    )
    jobs["twice"] = job("onnx_cast", out / "bert-fp16", out / "twice", scheme="bf16")
    jobs["lost"] = job(
        "onnx_qdq", out / "bert-clean", out / "lost", scheme="int8", rest="fp16", least_cosine=1.1
    )
    answers = dict(zip(jobs, drive(list(jobs.values())), strict=True))
    return {**answers, "out": out}


@pytest.fixture(scope="module")
def engines(graphs: Answers, rtx_python: Path, tmp_path_factory: pytest.TempPathFactory) -> Answers:
    """Every build of this file, in one process."""
    out, made = tmp_path_factory.mktemp("engines"), graphs["out"]
    jobs = {
        f"{name}-{scheme}": build(made / f"{name}-{graph}", out / f"{name}-{scheme}", scheme, PROFILES[name])
        for name in FAMILIES
        for scheme, graph in (("fp32", "clean"), ("fp16", "fp16"), ("int8", "int8"))
    }
    jobs["bert-bf16"] = build(made / "bert-bf16", out / "bert-bf16", "bf16", PROFILES["bert"])
    jobs["bert-fp8"] = build(made / "bert-fp8", out / "bert-fp8", "fp8", PROFILES["bert"], ["8.9", "12.0"])
    jobs["bert-int4"] = build(made / "bert-int4", out / "bert-int4", "int4_rtn", PROFILES["bert"])
    jobs["planted"] = build(made / "bert-clean", out / "planted", "fp16", PROFILES["bert"])
    jobs["planted-int8"] = build(made / "bert-fp16", out / "planted-int8", "int8", PROFILES["bert"])
    jobs["hopper"] = build(made / "bert-fp16", out / "hopper", "fp16", PROFILES["bert"], ["9.0"])
    jobs["turing"] = build(made / "bert-clean", out / "turing", "fp32", PROFILES["bert"], ["7.5"])
    jobs["no-profile"] = build(made / "bert-fp16", out / "no-profile", "fp16", {"batch": [1, 1, 1]})
    jobs["new-opset"] = build(made / "bert-fp16", out / "new-opset", "fp16", PROFILES["bert"], opset_limit=17)
    for name, place in broken(graphs["out"], tmp_path_factory.mktemp("broken")).items():
        jobs[name] = build(place, out / name, "fp32", PROFILES["bert"])
    place = tmp_path_factory.mktemp("drive-rtx")
    (place / "jobs.json").write_text(json.dumps(list(jobs.values())))
    environment(rtx_python, HERE / "drive.py", WORKERS, place / "jobs.json", place / "answers.json")
    answers = json.loads((place / "answers.json").read_text())
    return {**dict(zip(jobs, answers, strict=True)), "out": out}


def broken(graphs: Path, place: Path) -> dict[str, Path]:
    """Sources that a build must refuse."""
    no_data = shutil.copytree(graphs / "bert-clean", place / "no-data")
    (no_data / "model.onnx.data").unlink()
    cut = shutil.copytree(graphs / "bert-clean", place / "cut")
    (cut / "model.onnx.data").write_bytes((cut / "model.onnx.data").read_bytes()[:1000])
    alien = shutil.copytree(graphs / "bert-clean", place / "alien")
    graph = (alien / "model.onnx").read_bytes()
    (alien / "model.onnx").write_bytes(graph.replace(b"Softmax", b"MeanSqr"))
    (place / "pickle.onnx").write_bytes(b"\x80\x04\x95hello")
    (place / "text.onnx").write_text("this is no graph")
    return {
        "alien": alien,
        "no-data": no_data, "cut": cut, "pickle": place / "pickle.onnx", "text": place / "text.onnx",
        "missing": place / "nothing.onnx",
    }  # fmt: skip


def environment(python: Path, *arguments: str | Path) -> None:
    import os
    import subprocess

    env = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    done = subprocess.run(
        [python, "-P", *arguments], capture_output=True, text=True, timeout=580, check=False, env=env
    )
    assert done.returncode == 0, done.stderr[-3000:]


def job(worker: str, source: Path, out: Path, **request: Any) -> dict[str, Any]:
    return {"worker": worker, "request": {"source": str(source), "out": str(out), **request}}


def build(
    source: Path,
    out: Path,
    scheme: str,
    profile: dict[str, list[int]],
    targets: list[str] = TARGETS,
    **more: Any,
) -> dict[str, Any]:
    request = {"scheme": scheme, "flavour": "rtx", "capabilities": targets, "profiles": [profile], **more}
    return job("tensorrt_build", source, out, **request)


@pytest.mark.parametrize("name", FAMILIES)
def test_an_export_is_proven_at_other_shapes_than_its_example(graphs: Answers, name: str) -> None:
    answer = graphs[name]
    assert "error" not in answer
    assert len(answer["parity"]["batches"]) >= 2
    assert answer["parity"]["largest_difference"] < 1e-4


@pytest.mark.parametrize("name", FAMILIES)
def test_a_clean_up_keeps_the_answers_and_the_names_of_modules(graphs: Answers, name: str) -> None:
    answer = graphs[f"{name}-clean"]
    assert answer["kept"], answer["notes"]
    assert b"pkg.torch.onnx.name_scopes" in (graphs["out"] / f"{name}-clean" / "model.onnx").read_bytes()


@pytest.mark.parametrize("name", FAMILIES)
def test_fp16_answers_as_32_bits_do(graphs: Answers, name: str) -> None:
    answer = graphs[f"{name}-fp16"]
    assert "error" not in answer
    assert answer["distance"]["cosine"] > 0.999


@pytest.mark.parametrize("name", FAMILIES)
def test_int8_answers_as_32_bits_do(graphs: Answers, name: str) -> None:
    answer = graphs[f"{name}-int8"]
    assert "error" not in answer, answer
    assert answer["quantized"] > 0
    assert answer["distance"]["cosine"] > 0.9


def test_bf16_is_said_not_to_have_run(graphs: Answers) -> None:
    assert graphs["bert-bf16"]["distance"] is None
    assert any("not run" in note for note in graphs["bert-bf16"]["notes"])


def test_a_second_precision_is_refused(graphs: Answers) -> None:
    assert graphs["twice"]["error"]["reference"] == "already-converted"


def test_a_graph_that_lost_its_answers_is_not_kept(graphs: Answers) -> None:
    error = graphs["lost"]["error"]
    assert error["reference"] == "precision-lost"
    assert "cosine" in error["cause"][0]


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize(("scheme", "kind"), [("fp32", "Float"), ("fp16", "Half"), ("int8", "Int8")])
def test_an_engine_holds_what_was_asked(engines: Answers, name: str, scheme: str, kind: str) -> None:
    answer = engines[f"{name}-{scheme}"]
    assert "error" not in answer, answer
    content = answer["content"]
    assert content["evidence"] == "indirect"
    assert content["holds_what_was_asked"] and not content["wrong"]
    assert content["engine_products"][kind] > 0
    assert content["engine_bytes"] == (engines["out"] / f"{name}-{scheme}" / "model.engine").stat().st_size


@pytest.mark.parametrize(
    ("name", "kind"), [("bert-bf16", "BFloat16"), ("bert-fp8", "FP8"), ("bert-int4", "Int4")]
)
def test_narrower_formats_reach_the_engine(engines: Answers, name: str, kind: str) -> None:
    assert "error" not in engines[name], engines[name]
    assert engines[name]["content"]["engine_products"][kind] > 0


def test_an_engine_says_what_it_is_for(engines: Answers) -> None:
    facts = json.loads((engines["out"] / "bert-fp16" / "mopt.json").read_text())
    assert facts["engine"]["compute_capabilities"] == TARGETS
    assert facts["engine"]["profiles"] == [PROFILES["bert"]]
    assert facts["engine"]["version"].startswith("1.")
    assert facts["task"] == "embed" and facts["scheme"] == "fp16"


@pytest.mark.parametrize("name", ["planted", "planted-int8"])
def test_a_silent_wide_build_is_an_error_with_both_kinds_of_evidence(engines: Answers, name: str) -> None:
    error = engines[name]["error"]
    assert error["reference"] == "wrong-precision"
    assert any("of the network" in line for line in error["cause"])
    assert any("of the engine" in line for line in error["cause"])
    assert not (engines["out"] / name / "model.engine").exists()


@pytest.mark.parametrize(
    ("name", "reference", "says"),
    [
        ("hopper", "capability-unsupported", "9.0"),
        ("turing", "build-failed", "FP32 GEMM"),
        ("no-profile", "no-profile", "sequence"),
        ("new-opset", "opset-too-new", "17"),
        ("no-data", "external-data-missing", "missing"),
        ("cut", "external-data-missing", "1000 bytes"),
        ("pickle", "pickle", "any code"),
        ("text", "broken-artifact", "no ONNX"),
        ("missing", "broken-artifact", "nothing.onnx"),
        ("alien", "unsupported-operator", "MeanSqr: 2 nodes"),
        ("alien", "unsupported-operator", "from model.encoder.layer.0.attention"),
    ],
)
def test_bad_input_is_one_clear_error(engines: Answers, name: str, reference: str, says: str) -> None:
    error = engines[name]["error"]
    assert error["reference"] == reference
    assert says in "\n".join([error["message"], *error["cause"], *error["hint"]])
    assert list((engines["out"] / name).iterdir()) == []

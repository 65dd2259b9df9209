"""Real exports of tiny models: right ones pass their own proof, planted faults do not."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.engine

FAULTS = {
    "wrong_pooling": "bert",
    "no_mask": "bert",
    "not_normalised": "bert",
    "last_place": "qwen",
}


@pytest.fixture(scope="module")
def answers(models: Path, drive: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Every export of this file, made by one process: the answer of each, and the folder under `out`."""
    out = tmp_path_factory.mktemp("exports")
    halved = shutil.copytree(models / "bert", out / "sources" / "halved")
    drop_a_layer(halved)
    headless = shutil.copytree(models / "bert", out / "sources" / "headless")
    foreign = shutil.copytree(models / "bert", out / "sources" / "foreign")
    config = json.loads((foreign / "config.json").read_text())
    (foreign / "config.json").write_text(json.dumps({**config, "model_type": "nothing-known"}))

    jobs = {name: job(models / name, out / name) for name in ("bert", "qwen", "gpt2")}
    jobs["cross"] = job(models / "cross", out / "cross", task="rerank")
    for fault, model in FAULTS.items():
        jobs[fault] = {**job(models / model, out / fault), "plant": fault}
    jobs["halved"] = job(halved, out / "halved")
    jobs["headless"] = job(headless, out / "headless", task="rerank")
    jobs["foreign"] = job(foreign, out / "foreign")
    return {**dict(zip(jobs, drive(list(jobs.values())), strict=True)), "out": out}


def job(source: Path, out: Path, task: str = "embed") -> dict[str, Any]:
    request = {"source": str(source), "out": str(out), "task": task, "scheme": "fp32", "opset": 20}
    return {"worker": "onnx_export", "request": request}


def drop_a_layer(folder: Path) -> None:
    """Say that the model has a layer more than its file."""
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "num_hidden_layers": 3}))


@pytest.mark.parametrize(("name", "batches"), [("bert", 3), ("qwen", 4), ("gpt2", 3), ("cross", 3)])
def test_an_export_is_proven(answers: dict[str, Any], name: str, batches: int) -> None:
    answer = answers[name]
    assert "error" not in answer
    assert len(answer["parity"]["batches"]) == batches
    assert answer["parity"]["largest_difference"] < 1e-5
    assert answer["versions"]["torch"]


def test_a_model_that_counts_places_from_the_left_is_not_proven_with_padding_there(
    answers: dict[str, Any],
) -> None:
    """GPT-2 itself answers otherwise to it: no fault of the export, and said."""
    assert any("padded on the left PyTorch answers otherwise itself" in n for n in answers["gpt2"]["notes"])
    assert not any("padded on the left" in note for note in answers["qwen"]["notes"])


def test_a_last_token_model_is_also_proven_with_padding_on_the_left(answers: dict[str, Any]) -> None:
    assert any("left" in batch for batch in answers["qwen"]["parity"]["batches"])


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_fails_the_export(answers: dict[str, Any], fault: str) -> None:
    error = answers[fault]["error"]
    assert error["reference"] == "export-differs"
    assert "largest difference" in error["cause"][0]


def test_the_folder_is_what_a_server_needs(answers: dict[str, Any]) -> None:
    folder = answers["out"] / "bert"
    assert {path.name for path in folder.iterdir()} == {
        "model.onnx", "model.onnx.data", "mopt.json", "config.json", "tokenizer.json", "tokenizer_config.json",
    }  # fmt: skip
    facts = json.loads((folder / "mopt.json").read_text())
    assert facts["schema"] == "onnx_folder/1"
    assert (facts["task"], facts["scheme"]) == ("embed", "fp32")
    assert (facts["pooling"], facts["normalize"], facts["max_tokens"]) == ("mean", True, 128)
    assert [i["name"] for i in facts["inputs"]] == ["input_ids", "attention_mask", "token_type_ids"]
    assert all(i["shape"] == ["batch", "sequence"] for i in facts["inputs"])
    assert facts["outputs"] == [
        {"name": "sentence_embedding", "type": "tensor(float)", "shape": ["batch", 64]}
    ]


def test_a_decoder_takes_no_segments(answers: dict[str, Any]) -> None:
    facts = json.loads((answers["out"] / "qwen" / "mopt.json").read_text())
    assert [i["name"] for i in facts["inputs"]] == ["input_ids", "attention_mask"]
    assert facts["pooling"] == "lasttoken"


def test_a_cross_encoder_gives_scores(answers: dict[str, Any]) -> None:
    facts = json.loads((answers["out"] / "cross" / "mopt.json").read_text())
    assert facts["outputs"] == [{"name": "scores", "type": "tensor(float)", "shape": ["batch", 1]}]
    assert (facts["labels"], facts["activation"]) == (1, "sigmoid")
    assert "pooling" not in facts


def test_no_path_of_this_machine_is_in_the_graph(answers: dict[str, Any], models: Path) -> None:
    content = (answers["out"] / "bert" / "model.onnx").read_bytes()
    assert b"modeling_bert.py" not in content
    assert str(models).encode() not in content
    assert b"name_scopes" in content


def test_weights_that_are_missing_are_not_drawn_at_random(answers: dict[str, Any]) -> None:
    error = answers["halved"]["error"]
    assert error["reference"] == "broken-checkpoint"
    assert "layer.2" in error["cause"][0]
    assert answers["headless"]["error"]["reference"] == "broken-checkpoint"
    assert "classifier" in answers["headless"]["error"]["cause"][0]


def test_an_unknown_architecture_is_one_error(answers: dict[str, Any]) -> None:
    error = answers["foreign"]["error"]
    assert error["reference"] == "unsupported-architecture"
    assert "nothing-known" in error["cause"][0]

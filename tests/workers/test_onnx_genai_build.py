"""Real builds for ONNX Runtime GenAI: what the numbers in them are, and that a wrong one is caught."""

import json
import re
import shutil
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from model_optimizer.convert import onnx_genai
from model_optimizer.core import Artifact, plugins

pytestmark = pytest.mark.engine

SCHEMES = {"fp32": "fp32", "int8": "int8_weight", "int4": "int4_rtn"}


@pytest.fixture(scope="module")
def answers(models: Path, drive: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    out = tmp_path_factory.mktemp("genai")
    unknown = shutil.copytree(models / "lm", out / "sources" / "unknown")
    rename(unknown, "GPTNeoXForCausalLM")
    jobs = {precision: build(models / "lm", out, precision, precision) for precision in SCHEMES}
    jobs["rotated"] = {**build(models / "lm", out, "rotated", "fp32"), "plant": "other_rotation"}
    jobs["untied"] = build(models / "untied", out, "untied", "int4")
    jobs["sliding"] = build(models / "sliding", out, "sliding", "fp32")
    jobs["narrow"] = build(models / "narrow", out, "narrow", "fp32")
    jobs["unknown"] = build(unknown, out, "unknown", "fp32")
    return {**dict(zip(jobs, drive(list(jobs.values())), strict=True)), "out": out}


def build(source: Path, out: Path, name: str, precision: str) -> dict[str, Any]:
    scheme = plugins.load("model_optimizer.schemes", SCHEMES[precision]).SCHEME
    request: dict[str, Any] = {}

    def note(environment: str, worker: str, asked: dict[str, Any], progress: Any) -> dict[str, Any]:
        request.update(asked, out=str(out / name))
        (Path(asked["out"]) / "x").touch()
        return {}

    artifact = Artifact(
        path=str(source), format="safetensors", scheme="fp32", task="generate", bytes=1, digest="sha256:0"
    )
    onnx_genai.make(artifact, scheme, out / f"asked-{name}", run=note, progress=lambda *_: None)
    return {"worker": "onnx_genai_build", "request": request}


def rename(folder: Path, architecture: str) -> None:
    """The weights stay those of a Qwen3, which transformers goes by; the builder goes by this name."""
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "architectures": [architecture]}))


def test_32_bits_are_the_same_model(answers: dict[str, Any]) -> None:
    assert answers["fp32"]["parity"]["largest_difference"] < 1e-5
    assert answers["fp32"]["weights"]["quantized"] == 0


def test_what_was_built_and_cannot_be_run_is_an_error_with_a_hint(answers: dict[str, Any]) -> None:
    """Heads of 8 numbers: the runtime's attention takes multiples of 16."""
    error = answers["narrow"]["error"]
    assert error["reference"] == "build-failed"
    assert "head_size" in error["cause"][0] and error["hint"] == ["serve it with PyTorch or vLLM"]


def test_8_bits_share_the_head_as_the_embedding_table(answers: dict[str, Any]) -> None:
    weights = answers["int8"]["weights"]
    # qkv, output, gate, up, down in each of two layers, and the head.
    assert (weights["bits"], weights["block_size"], weights["quantized"]) == (8, 32, 11)
    assert (weights["symmetric"], weights["left"]) == (True, 0)
    assert (weights["head_bits"], weights["embedding_bits"]) == (8, 8)
    assert "the embedding table is the output head's, in 8 bits" in answers["int8"]["notes"]
    assert answers["int8"]["parity"]["mean_cosine"] > 0.999


def test_4_bits_have_a_head_of_8_that_is_the_embedding_too(answers: dict[str, Any]) -> None:
    weights = answers["int4"]["weights"]
    assert (weights["bits"], weights["block_size"], weights["quantized"]) == (4, 32, 11)
    assert (weights["symmetric"], weights["left"]) == (False, 0)
    assert (weights["head_bits"], weights["embedding_bits"]) == (8, 8)
    notes = "\n".join(answers["int4"]["notes"])
    assert "the output head is one of them, in 8 bits" in notes
    assert "accuracy level 4" in notes
    assert answers["int4"]["parity"]["mean_cosine"] > 0.9


def test_an_untied_model_keeps_its_table(answers: dict[str, Any]) -> None:
    weights = answers["untied"]["weights"]
    assert (weights["head_bits"], weights["embedding_bits"]) == (8, 32)
    assert "it is not the output head" in "\n".join(answers["untied"]["notes"])


def test_a_sliding_window_gets_the_room_it_asks_for(answers: dict[str, Any]) -> None:
    assert answers["sliding"]["parity"]["largest_difference"] < 1e-5


def test_another_rotation_is_another_model(answers: dict[str, Any]) -> None:
    assert answers["rotated"]["error"]["reference"] == "export-differs"


def test_an_architecture_without_builder_is_one_error(answers: dict[str, Any]) -> None:
    error = answers["unknown"]["error"]
    assert error["reference"] == "unsupported-architecture"
    assert "not currently supported" in error["cause"][0]


def test_the_folder_is_what_a_server_needs(answers: dict[str, Any]) -> None:
    for precision, scheme in SCHEMES.items():
        folder = answers["out"] / precision
        names = {path.name for path in folder.iterdir()}
        assert names >= {"model.onnx", "model.onnx.data", "genai_config.json", "mopt.json", "config.json"}
        assert names >= {"tokenizer.json", "tokenizer_config.json"}
        facts = json.loads((folder / "mopt.json").read_text())
        assert (facts["task"], facts["scheme"], facts["max_tokens"]) == ("generate", scheme, 128)
    assert not [p for p in answers["out"].rglob("*") if "scratch" in p.name]


def test_the_list_of_architectures_is_the_builders(onnx_env_python: Path) -> None:
    site = next(onnx_env_python.parents[1].glob("lib/python*/site-packages"))
    source = (site / "onnxruntime_genai" / "models" / "builder.py").read_text()
    known = set(re.findall(r'architectures\[0\] == "(\w+ForCausalLM)"', source))
    listed = Path(onnx_genai.__file__).with_suffix(".toml").read_text()
    assert known == set(re.findall(r'"(\w+ForCausalLM)"', listed))
    assert find_spec("onnxruntime_genai") is None  # the base install has none; facts stand in for it

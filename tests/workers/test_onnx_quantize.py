"""Real quantizations of an exported model, and what the worker says of them."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.engine


@pytest.fixture(scope="module")
def answers(models: Path, drive: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    out = tmp_path_factory.mktemp("quantized")
    source = {"source": str(out / "fp32")}
    export = {
        "source": str(models / "bert"), "out": str(out / "fp32"), "task": "embed", "scheme": "fp32", "opset": 20,
    }  # fmt: skip
    pairs = {**export, "source": str(models / "cross"), "out": str(out / "pairs"), "task": "rerank"}
    dynamic = {**source, "scheme": "int8", "method": "dynamic"}
    blockwise = {**source, "method": "blockwise", "block_size": 32}
    jobs: dict[str, dict[str, Any]] = {
        "fp32": {"worker": "onnx_export", "request": export},
        "pairs": {"worker": "onnx_export", "request": pairs},
        "pairs8": quantize({**dynamic, "source": str(out / "pairs")}, out / "pairs8"),
        "int8": quantize({**dynamic, "reduce_range": False}, out / "int8"),
        "reduced": quantize({**dynamic, "reduce_range": True}, out / "reduced"),
        "int4": quantize({**blockwise, "scheme": "int4_rtn", "bits": 4, "symmetric": False}, out / "int4"),
        "wide": quantize({**blockwise, "scheme": "int8_weight", "bits": 8, "symmetric": True}, out / "wide"),
        "twice": quantize({**dynamic, "source": str(out / "int8")}, out / "twice"),
        "foreign": quantize({**dynamic, "source": str(models / "bert")}, out / "foreign"),
    }
    made = dict(zip(jobs, drive(list(jobs.values())), strict=True))
    garbage = shutil.copytree(out / "fp32", out / "garbage-source")
    (garbage / "model.onnx").write_bytes(b"\xff" * 100)
    (made["garbage"],) = drive([quantize({**dynamic, "source": str(garbage)}, out / "garbage")])
    return {**made, "out": out}


def quantize(request: dict[str, Any], out: Path) -> dict[str, Any]:
    return {"worker": "onnx_quantize", "request": {**request, "out": str(out)}}


def test_dynamic_int8_quantizes_weights_and_leaves_tables(answers: dict[str, Any]) -> None:
    answer = answers["int8"]
    # Six a layer: query, key, value, output, up, down.
    assert answer["weights"]["quantized"] == 12
    assert (answer["weights"]["operator"], answer["weights"]["bits"]) == ("MatMulInteger", 8)
    notes = "\n".join(answer["notes"])
    assert "12 of 12 weight matrices in 8-bit integers, one scale an output channel" in notes
    assert "4 products of two activations stay in 32 bits" in notes
    assert "lookup tables (0.1 MB) stay in 32 bits" in notes
    assert "VNNI" in notes


def test_products_with_a_bias_are_quantized_too(answers: dict[str, Any]) -> None:
    """A cross-encoder's head: their weights are turned over, which its record of shapes must not contradict."""
    assert answers["pairs8"]["weights"]["quantized"] == 14
    assert answers["pairs8"]["notes"][0].startswith("14 of 14 weight matrices")


def test_seven_bits_where_eight_would_overflow(answers: dict[str, Any]) -> None:
    assert answers["reduced"]["weights"]["bits"] == 7
    assert "7 of 8 bits" in "\n".join(answers["reduced"]["notes"])


@pytest.mark.parametrize(("name", "bits", "symmetric"), [("int4", 4, False), ("wide", 8, True)])
def test_blockwise_weights(answers: dict[str, Any], name: str, bits: int, symmetric: bool) -> None:
    weights = answers[name]["weights"]
    assert weights == {
        "operator": "MatMulNBits",
        "bits": bits,
        "block_size": 32,
        "symmetric": symmetric,
        "quantized": 12,
        "activations": "float32 outside, int8 by block inside the kernel (accuracy level 4)",
    }


def test_the_folder_says_its_scheme_and_keeps_the_rest(answers: dict[str, Any]) -> None:
    before = json.loads((answers["out"] / "fp32" / "mopt.json").read_text())
    for name, scheme in (("int8", "int8"), ("int4", "int4_rtn"), ("wide", "int8_weight")):
        folder = answers["out"] / name
        facts = json.loads((folder / "mopt.json").read_text())
        assert facts["scheme"] == scheme
        assert facts["pooling"] == before["pooling"]
        assert facts["inputs"] == before["inputs"]
        assert "parity" not in facts  # that proof was of the graph before
        assert {p.name for p in folder.iterdir()} == {p.name for p in (answers["out"] / "fp32").iterdir()}


def test_sizes_fall_with_bits(answers: dict[str, Any]) -> None:
    sizes = [size(answers["out"] / name) for name in ("fp32", "wide", "int4")]
    assert sizes == sorted(sizes, reverse=True)
    assert size(answers["out"] / "int8") < size(answers["out"] / "fp32")


def size(folder: Path) -> int:
    return (folder / "model.onnx.data").stat().st_size


def test_what_is_quantized_is_not_quantized_again(answers: dict[str, Any]) -> None:
    assert answers["twice"]["error"]["reference"] == "already-quantized"


def test_a_folder_of_another_kind_is_one_error(answers: dict[str, Any]) -> None:
    assert answers["foreign"]["error"]["reference"] == "broken-artifact"
    assert answers["garbage"]["error"]["reference"] == "broken-artifact"


def test_nothing_of_the_work_stays(answers: dict[str, Any]) -> None:
    assert not [p for p in answers["out"].rglob("*") if "scratch" in p.name]

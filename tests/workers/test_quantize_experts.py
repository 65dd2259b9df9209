"""Mixture-of-experts models: every expert is quantized, routers are not, and the names are the checkpoint's own."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

import model_optimizer.workers as workers
from model_optimizer.system import safetensors_header

pytestmark = pytest.mark.engine

WORKERS = Path(workers.__file__).parent
TINY = Path(__file__).parents[2] / "examples/models/tiny-qwen3"
MAKE = """
import sys, torch
from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM

torch.manual_seed(0)
config = Qwen3MoeConfig(
    vocab_size=4096, hidden_size=64, intermediate_size=128, moe_intermediate_size=64, num_hidden_layers=2,
    num_attention_heads=4, num_key_value_heads=2, head_dim=16, num_experts=4, num_experts_per_tok=2,
    max_position_embeddings=256, tie_word_embeddings=False,
)
Qwen3MoeForCausalLM(config).to(torch.bfloat16).save_pretrained(sys.argv[1])
"""


@pytest.fixture(scope="module")
def experts(llm_compressor_env_python: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("experts") / "model"
    subprocess.run(
        [llm_compressor_env_python, "-P", "-c", MAKE, folder], check=True, capture_output=True, timeout=200
    )
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (folder / name).write_bytes((TINY / name).read_bytes())
    return folder


@pytest.mark.parametrize(
    ("worker", "asked", "kind"),
    [
        ("quantize_free", {"preset": "FP8_DYNAMIC", "group_size": 0}, "weight_scale"),
        (
            "quantize_calibrated",
            {
                "preset": "W4A16", "group_size": 128, "method": "gptq", "symmetric": None, "search_steps": 1,
                "statistics": {"dampening": 1.0, "longest_token": 3, "tokens_per_column": 8},
                "calibration": {"samples": None, "count": 4, "length": 64},
            },
            "weight_packed",
        ),
    ],
)  # fmt: skip
def test_experts_are_quantized_and_routers_are_not(
    llm_compressor_env_python: Path,
    experts: Path,
    tmp_path: Path,
    worker: str,
    asked: dict[str, Any],
    kind: str,
) -> None:
    out = tmp_path / "out"
    out.mkdir()
    request = {
        "source": str(experts), "out": str(out), "work": str(tmp_path / "work"), "scheme": "s",
        "task": "generate", **asked,
    }  # fmt: skip
    (tmp_path / "request.json").write_text(json.dumps(request))
    subprocess.run(
        [
            llm_compressor_env_python, "-P", WORKERS / f"{worker}.py", tmp_path / "request.json",
            tmp_path / "result.json",
        ],
        capture_output=True, timeout=300, check=False,
    )  # fmt: skip
    result = json.loads((tmp_path / "result.json").read_text())
    assert "error" not in result
    assert result["weights"]["quantized"] == 2 * (4 + 4 * 3)
    if asked.get("method") == "gptq":
        assert result["weights"]["symmetric"], "vLLM 0.19 refuses zero points of experts"
        assert any("no zero points" in note for note in result["notes"])
    assert any("mlp.gate (2) keeps its precision: a router" in note for note in result["notes"])
    stored = safetensors_header.read(out / "model.safetensors")
    for layer in range(2):
        for expert in range(4):
            for part in ("gate_proj", "up_proj", "down_proj"):
                assert f"model.layers.{layer}.mlp.experts.{expert}.{part}.{kind}" in stored
        assert stored[f"model.layers.{layer}.mlp.gate.weight"].dtype == "BF16"
    assert stored["lm_head.weight"].dtype == "BF16"
    ignored = json.loads((out / "config.json").read_text())["quantization_config"]["ignore"]
    assert "lm_head" in ignored
    assert any("gate" in name for name in ignored)

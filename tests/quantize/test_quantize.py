"""The tools of quantize/ by what they declare and ask of their worker, and the stage's choice."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from model_optimizer.convert import onnx_from_torch, onnx_genai
from model_optimizer.core import Artifact, ModelSpec, UsageError, plugins
from model_optimizer.core.paths import Order
from model_optimizer.quantize import onnx_blockwise, onnx_dynamic
from model_optimizer.quantize.run import plan
from model_optimizer.system.making import bytes_beside_weights
from model_optimizer.testing.contracts import tool_contract

SCHEMES = {n: m.SCHEME for n, m in plugins.load_all("model_optimizer.schemes").items()}
TOOLS: dict[str, ModuleType] = {
    "onnx_from_torch": onnx_from_torch, "onnx_genai": onnx_genai,
    "onnx_dynamic": onnx_dynamic, "onnx_blockwise": onnx_blockwise,
}  # fmt: skip
MINILM = ModelSpec(
    name="minilm", architecture="BertModel", model_type="bert", task="embed", parameters=22_565_376,
    active_parameters=22_565_376, embedding_parameters=11_917_824, layers=6, hidden_size=384,
    intermediate_size=1536, vocab_size=30_522, heads=12, kv_heads=12, head_dim=32, attention="mha", groups=(),
)  # fmt: skip
SOURCE = Artifact(
    path="/m", format="safetensors", scheme="fp32", task="embed", bytes=1, digest="sha256:" + "0" * 64
)


def order(scheme: str, model: ModelSpec = MINILM, have: str = "fp32") -> Order:
    source = replace(SOURCE, scheme=have, task=model.task)
    return Order(model=model, source=source, scheme=scheme, formats=("onnx", "onnx_genai"))


@pytest.mark.parametrize("name", ["onnx_dynamic", "onnx_blockwise"])
def test_contract(name: str) -> None:
    tool_contract(name, TOOLS[name], SCHEMES, MINILM)


@pytest.mark.parametrize(
    ("tool", "scheme", "measured"),
    [
        (onnx_dynamic, "int8", 58_415_104),
        (onnx_blockwise, "int4_rtn", 54_599_680),
        (onnx_blockwise, "int8_weight", 59_750_000),
    ],
)
def test_sizes_are_those_of_real_minilm(tool: ModuleType, scheme: str, measured: int) -> None:
    """Bytes of model.onnx.data, made by ONNX Runtime 1.31."""
    guessed = tool.needs(MINILM, SCHEMES[scheme]).artifact_bytes - bytes_beside_weights(MINILM)
    assert guessed == pytest.approx(measured, rel=0.01)


@pytest.mark.parametrize(("tool", "seen"), [(onnx_dynamic, 356_000_000), (onnx_blockwise, 262_000_000)])
def test_memory_is_never_promised_below_what_was_seen(tool: ModuleType, seen: int) -> None:
    for scheme in tool.WRITES:
        assert seen <= tool.needs(MINILM, SCHEMES[scheme]).memory_bytes <= 1.6 * seen


def test_the_dynamic_quantizer_needs_room_for_a_copy() -> None:
    needs = onnx_dynamic.needs(MINILM, SCHEMES["int8"])
    assert needs.disk_bytes == needs.artifact_bytes + 4 * MINILM.parameters


@pytest.mark.parametrize(
    ("tool", "scheme", "asked"),
    [
        (onnx_dynamic, "int8", {"method": "dynamic"}),
        (
            onnx_blockwise,
            "int4_rtn",
            {"method": "blockwise", "bits": 4, "block_size": 32, "symmetric": False},
        ),
        (
            onnx_blockwise,
            "int8_weight",
            {"method": "blockwise", "bits": 8, "block_size": 32, "symmetric": True},
        ),
    ],
)
def test_the_scheme_decides_what_the_worker_is_asked(
    tool: ModuleType, scheme: str, asked: dict[str, Any], tmp_path: Path
) -> None:
    seen: dict[str, Any] = {}

    def run(environment: str, worker: str, request: Mapping[str, Any], progress: Any) -> Mapping[str, Any]:
        seen.update(request)
        assert (environment, worker) == ("onnx", "onnx_quantize")
        (Path(request["out"]) / "model.onnx").write_bytes(b"x")
        return {"versions": {"onnxruntime": "1"}, "notes": []}

    source = replace(SOURCE, format="onnx")
    made = tool.make(source, SCHEMES[scheme], tmp_path / "out", run=run, progress=lambda *_: None)
    assert {k: v for k, v in seen.items() if k not in ("source", "out")} == {"scheme": scheme, **asked}
    assert (made.scheme, made.format, made.task) == (scheme, "onnx", "embed")


@pytest.mark.parametrize(
    ("scheme", "tools"),
    [
        ("int8", ["onnx_from_torch", "onnx_dynamic"]),
        ("int4_rtn", ["onnx_from_torch", "onnx_blockwise"]),
        ("int8_weight", ["onnx_from_torch", "onnx_blockwise"]),
    ],
)
def test_a_conversion_comes_first_where_the_quantizer_reads_another_format(
    scheme: str, tools: list[str]
) -> None:
    assert [hop.tool for hop in plan(order(scheme), TOOLS, SCHEMES)] == tools


def test_language_models_are_quantized_by_their_builder() -> None:
    lm = replace(MINILM, task="generate", architecture="Qwen3ForCausalLM")
    assert [hop.tool for hop in plan(order("int4_rtn", lm, "bf16"), TOOLS, SCHEMES)] == ["onnx_genai"]


@pytest.mark.parametrize("scheme", ["fp32", "bf16", "fp16"])
def test_floats_are_not_quantizations(scheme: str) -> None:
    with pytest.raises(UsageError, match="not a quantization") as caught:
        plan(order(scheme), TOOLS, SCHEMES)
    assert "mopt convert" in caught.value.hint[0]


def test_what_cannot_be_made_is_refused_with_what_can() -> None:
    with pytest.raises(UsageError) as caught:
        plan(order("nvfp4"), TOOLS, SCHEMES)
    assert caught.value.reference == "cannot-be-made"
    assert caught.value.hint == (
        "from it can be made: fp32 as onnx, int4_rtn as onnx, int8 as onnx, int8_weight as onnx",
    )


def test_a_quantized_checkpoint_is_not_quantized_again() -> None:
    with pytest.raises(UsageError) as caught:
        plan(order("int8", have="awq_int4"), TOOLS, SCHEMES)
    assert "awq_int4" in caught.value.cause[0]
    assert "nothing" in caught.value.hint[0]

"""The tools of convert/ by what they declare, and the choice of a scheme for a format."""

from dataclasses import replace
from types import ModuleType

import pytest

from model_optimizer.convert import onnx_from_torch, onnx_genai
from model_optimizer.convert.run import plan
from model_optimizer.core import Artifact, ModelSpec, UsageError, plugins
from model_optimizer.core.paths import Order
from model_optimizer.quantize import onnx_blockwise, onnx_dynamic
from model_optimizer.system.making import bytes_beside_weights
from model_optimizer.testing.contracts import tool_contract

SCHEMES = {n: m.SCHEME for n, m in plugins.load_all("model_optimizer.schemes").items()}
TOOLS: dict[str, ModuleType] = {
    "onnx_from_torch": onnx_from_torch, "onnx_genai": onnx_genai,
    "onnx_dynamic": onnx_dynamic, "onnx_blockwise": onnx_blockwise,
}  # fmt: skip

LM = ModelSpec(
    name="lm", architecture="Qwen3ForCausalLM", model_type="qwen3", task="generate",
    parameters=218_507_264, active_parameters=218_507_264, embedding_parameters=155_582_464, layers=4,
    hidden_size=1024, intermediate_size=3072, vocab_size=151_936, heads=16, kv_heads=8, head_dim=128,
    attention="gqa", groups=(), tied_embeddings=True, max_position=32_768,
)  # fmt: skip
BERT = replace(
    LM, name="bert", architecture="BertModel", model_type="bert", task="embed", parameters=22_565_376,
    active_parameters=22_565_376, embedding_parameters=11_917_824, tied_embeddings=False, max_position=512,
)  # fmt: skip


def artifact(task: str, scheme: str = "fp32", form: str = "safetensors") -> Artifact:
    return Artifact(path="/m", format=form, scheme=scheme, task=task, bytes=1, digest="sha256:" + "0" * 64)


def order(model: ModelSpec, *formats: str, scheme: str = "fp32", have: str = "fp32") -> Order:
    return Order(model=model, source=artifact(model.task, have), scheme=scheme, formats=formats)


@pytest.mark.parametrize("name", ["onnx_from_torch", "onnx_genai"])
def test_contract(name: str) -> None:
    tool_contract(name, TOOLS[name], SCHEMES, LM if name == "onnx_genai" else BERT)


@pytest.mark.parametrize(
    ("scheme", "measured"),
    [("fp32", 890_806_272), ("int8_weight", 262_627_328), ("int4_rtn", 237_015_040)],
)
def test_sizes_of_tied_language_models_are_those_of_real_builds(scheme: str, measured: int) -> None:
    """Four layers as wide as Qwen3-0.6B, built by onnxruntime-genai 0.18: bytes of model.onnx.data."""
    guessed = onnx_genai.needs(LM, SCHEMES[scheme]).artifact_bytes - bytes_beside_weights(LM)
    assert guessed == pytest.approx(measured, rel=0.002)


@pytest.mark.parametrize("scheme", ["int8_weight", "int4_rtn"])
def test_an_untied_model_keeps_its_table_in_32_bits(scheme: str) -> None:
    head = LM.embedding_parameters
    untied = replace(LM, tied_embeddings=False, head_parameters=head, parameters=LM.parameters + head)
    tied_bytes = onnx_genai.needs(LM, SCHEMES[scheme]).artifact_bytes
    untied_bytes = onnx_genai.needs(untied, SCHEMES[scheme]).artifact_bytes
    assert untied_bytes - tied_bytes == 4 * LM.embedding_parameters


def test_the_head_of_a_language_model_is_not_exported_with_its_body() -> None:
    headed = replace(BERT, parameters=BERT.parameters + 1_000_000, head_parameters=1_000_000)
    fp32 = SCHEMES["fp32"]
    assert onnx_from_torch.needs(headed, fp32) == onnx_from_torch.needs(BERT, fp32)


@pytest.mark.parametrize(
    ("tool", "model", "scheme", "seen"),
    [
        (onnx_from_torch, BERT, "fp32", 680_000_000),
        (onnx_genai, LM, "fp32", 3_105_000_000),
        (onnx_genai, LM, "int8_weight", 4_592_000_000),
        (onnx_genai, LM, "int4_rtn", 4_565_000_000),
    ],
)
def test_memory_is_never_promised_below_what_was_seen(
    tool: ModuleType, model: ModelSpec, scheme: str, seen: int
) -> None:
    assert seen <= tool.needs(model, SCHEMES[scheme]).memory_bytes <= 1.4 * seen


def test_genai_refuses_what_its_builder_does_not_know() -> None:
    assert onnx_genai.refuses(LM) is None
    reason = onnx_genai.refuses(replace(LM, architecture="MambaForCausalLM"))
    assert reason == "onnxruntime-genai 0.18.0 has no builder for MambaForCausalLM"


def test_a_float_model_becomes_32_bits() -> None:
    for have in ("fp32", "bf16", "fp16"):
        (hop,) = plan(order(BERT, "onnx", have=have), TOOLS)
        assert (hop.tool, hop.scheme, hop.format) == ("onnx_from_torch", "fp32", "onnx")


def test_a_scheme_may_be_asked_for() -> None:
    chain = plan(order(BERT, "onnx"), TOOLS, scheme="int8")
    assert [hop.tool for hop in chain] == ["onnx_from_torch", "onnx_dynamic"]
    (hop,) = plan(order(LM, "onnx", "onnx_genai"), TOOLS, scheme="int4_rtn")
    assert hop.tool == "onnx_genai"


def test_what_is_impossible_is_refused_with_what_is_possible() -> None:
    with pytest.raises(UsageError) as caught:
        plan(order(LM, "onnx"), TOOLS)
    assert caught.value.message == "no tool makes `lm` in `fp32` as onnx"
    assert caught.value.reference == "cannot-be-made"
    assert caught.value.hint == (
        "from it can be made: fp32 as onnx_genai, int4_rtn as onnx_genai, int8_weight as onnx_genai",
    )


def test_an_unknown_architecture_is_refused_with_the_reason() -> None:
    strange = replace(LM, architecture="MambaForCausalLM")
    with pytest.raises(UsageError) as caught:
        plan(order(strange, "onnx_genai"), TOOLS)
    assert "no builder for MambaForCausalLM" in "\n".join(caught.value.cause)
    assert "nothing" in caught.value.hint[0]


def test_what_is_there_already_is_not_made() -> None:
    there = Order(model=BERT, source=artifact("embed", form="onnx"), scheme="fp32", formats=("onnx",))
    with pytest.raises(UsageError, match="already"):
        plan(there, TOOLS)

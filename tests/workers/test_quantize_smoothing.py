"""Which norms take the scales that are moved out of activations, by the names that a checkpoint has."""

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import _quantize_smoothing as room
import pytest
import quantize_calibrated
from _quantize_source import Source, Tensor

LLAMA = (
    "input_layernorm", "post_attention_layernorm", "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj",
    "self_attn.o_proj", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj",
)  # fmt: skip
GEMMA = (*LLAMA, "pre_feedforward_layernorm", "post_feedforward_layernorm")


def source(*layers: tuple[str, ...], architecture: str = "NewForCausalLM") -> Source:
    names = [f"model.layers.{n}.{kind}.weight" for n, kinds in enumerate(layers) for kind in kinds]
    names += ["model.norm.weight", "model.layers.0.self_attn.q_proj.bias"]
    tensors = tuple(Tensor(name=n, file="f", dtype="BF16", shape=(2, 2), start=0, bytes=8) for n in names)
    config: dict[str, Any] = {"architectures": [architecture]}
    return Source(folder=Path(), config=config, tensors=tensors, left={}, group_size=0)


def without(kinds: tuple[str, ...], *gone: str) -> tuple[str, ...]:
    return tuple(kind for kind in kinds if kind not in gone)


@pytest.mark.parametrize(
    ("layers", "llama", "gemma"),
    [
        ((LLAMA, LLAMA), True, False),
        ((GEMMA, GEMMA), True, True),
        ((LLAMA, without(LLAMA, "self_attn.q_proj")), False, False),
        ((without(LLAMA, "input_layernorm"),), False, False),
        ((without(LLAMA, "mlp.gate_proj"),), False, False),
        ((GEMMA, LLAMA), True, False),
    ],
)
def test_a_layout_is_known_by_what_every_layer_has(
    layers: tuple[tuple[str, ...], ...], llama: bool, gemma: bool
) -> None:
    assert (room.like_llama(source(*layers)), room.like_gemma(source(*layers))) == (llama, gemma)


@pytest.fixture(autouse=True)
def library(monkeypatch: pytest.MonkeyPatch) -> None:
    """llm-compressor's modifiers as what they are given, and lists with one architecture each."""

    def modifier(**given: Any) -> dict[str, Any]:
        return given

    top = "llmcompressor.modifiers.transform"
    for name, members in {
        f"{top}.smoothquant": {"SmoothQuantModifier": modifier},
        f"{top}.smoothquant.utils": {"MAPPINGS_REGISTRY": {"Gemma3ForCausalLM": 1, "ListedForCausalLM": 1}},
        f"{top}.awq": {"AWQModifier": modifier},
        f"{top}.awq.mappings": {
            "AWQ_MAPPING_REGISTRY": {"Gemma3ForCausalLM": "three", "Gemma2ForCausalLM": "two"}
        },
    }.items():
        module = ModuleType(name)
        vars(module).update(members)
        monkeypatch.setitem(sys.modules, name, module)


def test_gemma_is_smoothed_at_the_norm_before_its_mlp() -> None:
    """The library's own list names the norm behind attention: INT8 of a tiny Gemma 3 kept a cosine of 0.56."""
    (found,) = room.smoothquant(source(GEMMA, GEMMA, architecture="Gemma3ForCausalLM"), 0.8)
    assert [norm for _layers, norm in found["mappings"]] == [
        "re:.*input_layernorm$", "re:.*pre_feedforward_layernorm$",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("layer", "architecture", "smoothed"),
    [
        (LLAMA, "NewForCausalLM", True),
        (without(LLAMA, "mlp.gate_proj"), "ListedForCausalLM", True),
        (without(LLAMA, "mlp.gate_proj"), "NewForCausalLM", False),
        (without(LLAMA, "input_layernorm"), "NewForCausalLM", False),
    ],
)
def test_only_known_layouts_are_smoothed(layer: tuple[str, ...], architecture: str, smoothed: bool) -> None:
    found = room.smoothquant(source(layer, layer, architecture=architecture), 0.8)
    assert found == ([{"smoothing_strength": 0.8}] if smoothed else [])


@pytest.mark.parametrize(
    ("layer", "architecture", "mappings"),
    [
        (LLAMA, "LlamaForCausalLM", None),
        (GEMMA, "Gemma3ForCausalLM", None),
        (GEMMA, "Gemma2Model", "two"),
        ((*GEMMA, "self_attn.q_norm"), "Gemma3TextModel", "three"),
    ],
)
def test_embedding_models_of_gemma_are_scaled_like_its_language_models(
    layer: tuple[str, ...], architecture: str, mappings: str | None
) -> None:
    found = room.awq(source(layer, architecture=architecture), 5)
    assert found == {"n_grid": 5} | ({"mappings": mappings} if mappings else {})


@pytest.mark.parametrize(
    ("method", "layer", "said"),
    [
        ("smoothquant", LLAMA, False), ("smoothquant", without(LLAMA, "input_layernorm"), True),
        ("gptq", without(LLAMA, "input_layernorm"), False),
    ],
)  # fmt: skip
def test_the_record_says_where_nothing_was_smoothed(method: str, layer: tuple[str, ...], said: bool) -> None:
    notes = quantize_calibrated.smoothing_notes(source(layer), {"method": method})
    assert bool(notes) is said

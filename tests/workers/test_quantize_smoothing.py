"""Which norms take the scales that are moved out of activations, by the names that a checkpoint has."""

from pathlib import Path
from typing import Any

import _quantize_smoothing as room
import pytest
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

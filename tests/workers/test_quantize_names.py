"""Layers of a quantized checkpoint have the names that an engine looks for."""

import json
from pathlib import Path

import _quantize_names as room
import pytest
from _contract import Failure
from _quantize_source import INDEX, Source, Tensor

BLOCK = "model.layers.0.block_sparse_moe.experts.3"


def source(*modules: str) -> Source:
    tensors = tuple(
        Tensor(name=f"{m}.weight", file="f", dtype="BF16", shape=(2, 2), start=0, bytes=8) for m in modules
    )
    return Source(folder=Path(), config={}, tensors=tensors, left={}, group_size=0)


def write(path: Path, *names: str) -> bytes:
    header = {name: {"dtype": "U8", "shape": [1], "data_offsets": [n, n + 1]} for n, name in enumerate(names)}
    text = json.dumps({"__metadata__": {"format": "pt"}, **header}).encode()
    data = bytes(range(len(names)))
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)
    return data


def names(path: Path) -> list[str]:
    raw = path.read_bytes()
    length = int.from_bytes(raw[:8], "little")
    return [name for name in json.loads(raw[8 : 8 + length]) if name != "__metadata__"]


def test_experts_get_the_names_of_the_original(tmp_path: Path) -> None:
    made = tmp_path / "model.safetensors"
    data = write(
        made, f"{BLOCK}.gate_proj.weight", f"{BLOCK}.gate_proj.weight_scale", f"{BLOCK}.up_proj.weight"
    )
    index = {"weight_map": {f"{BLOCK}.down_proj.weight_packed": "f"}}
    (tmp_path / INDEX).write_text(json.dumps(index))
    size = made.stat().st_size
    room.restore_names(tmp_path, source(f"{BLOCK}.w1", f"{BLOCK}.w3"))
    assert names(made) == [f"{BLOCK}.w1.weight", f"{BLOCK}.w1.weight_scale", f"{BLOCK}.w3.weight"]
    assert made.stat().st_size == size
    assert made.read_bytes().endswith(data), "what is behind the header stays where it is"
    found = json.loads((tmp_path / INDEX).read_text())["weight_map"]
    assert found == {f"{BLOCK}.w2.weight_packed": "f"}


def test_names_that_are_the_originals_stay_and_what_stands_before_a_block_may_differ(tmp_path: Path) -> None:
    made = tmp_path / "model.safetensors"
    write(made, "layers.0.mlp.experts.1.gate_proj.weight_packed", "layers.0.mlp.up_proj.weight")
    before = made.read_bytes()
    wanted = source("model.layers.0.mlp.experts.1.gate_proj", "model.layers.0.mlp.up_proj")
    room.restore_names(tmp_path, wanted)
    assert made.read_bytes() == before


def test_a_layer_that_an_engine_would_not_find_is_an_error(tmp_path: Path) -> None:
    write(tmp_path / "model.safetensors", "model.layers.0.mlp.wi.weight")
    with pytest.raises(Failure, match="1 layers have other names") as caught:
        room.restore_names(tmp_path, source("model.layers.0.mlp.up_proj"))
    assert caught.value.cause == ("`layers.0.mlp.up_proj` is not there",)

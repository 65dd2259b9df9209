"""Small checkpoints for tests: safetensors files and model folders with weights of zeros."""

import json
import re
from collections.abc import Mapping
from math import prod
from pathlib import Path

from model_optimizer.core import ModelSpec, Weight
from model_optimizer.system.safetensors_header import BITS

Layout = Mapping[str, tuple[str, tuple[int, ...]]]
"""Tensor name -> (number format as safetensors writes it, shape)."""

TINY_LLAMA: Mapping[str, object] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 64,
    "max_position_embeddings": 128,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}


def write_safetensors(path: Path, tensors: Layout) -> None:
    """A valid file whose weights are all zero."""
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, (dtype, shape) in tensors.items():
        start, end = end, end + prod(shape) * BITS[dtype] // 8
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [start, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(len(text).to_bytes(8, "little") + text + bytes(end))


def write_folder(folder: Path, config: Mapping[str, object], tensors: Layout, *, shards: int = 1) -> Path:
    """config.json and the weights, in one file or in several with an index."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    if shards == 1:
        write_safetensors(folder / "model.safetensors", tensors)
        return folder
    names = list(tensors)
    placed: dict[str, str] = {}
    for number in range(shards):
        file = f"model-{number + 1:05d}-of-{shards:05d}.safetensors"
        mine = names[number::shards]
        write_safetensors(folder / file, {name: tensors[name] for name in mine})
        placed.update(dict.fromkeys(mine, file))
    index = {"metadata": {"total_size": 0}, "weight_map": placed}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return folder


def layout(spec: ModelSpec, dtype: str = "BF16") -> dict[str, tuple[str, tuple[int, ...]]]:
    """Every tensor of a model by the name that it has in a checkpoint."""
    return {name: (dtype, shape) for weight in spec.weights for name, shape in _tensors(weight, spec)}


def _tensors(weight: Weight, spec: ModelSpec) -> list[tuple[str, tuple[int, ...]]]:
    """The copies of a weight; experts whose number is not part of the name are stored as one tensor."""
    experts = spec.experts.routed if spec.experts else 1
    match weight.name.count("*"):
        case 0:
            return [(weight.name, weight.shape)]
        case 1 if weight.role == "expert":
            shape = (experts, *weight.shape)
            return [(_numbered(weight.name, layer), shape) for layer in range(weight.copies // experts)]
        case 1:
            return [(_numbered(weight.name, copy), weight.shape) for copy in range(weight.copies)]
        case _:
            copies = range(weight.copies)
            return [(_numbered(weight.name, n // experts, n % experts), weight.shape) for n in copies]


def _numbered(name: str, *numbers: int) -> str:
    left = iter(numbers)
    return re.sub(r"\*", lambda _: str(next(left)), name)

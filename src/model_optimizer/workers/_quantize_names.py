"""Layers keep the names that they had in the original, which are those that engines look for.

llm-compressor takes stacks of experts apart and gives every expert `gate_proj`, `up_proj` and `down_proj`,
also where the architecture's own names are others (Mixtral: `w1`, `w3`, `w2`). Standard library only.
"""

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path

from _contract import fail
from _quantize_source import INDEX, Source

LIKE_MIXTRAL = {"gate_proj": "w1", "down_proj": "w2", "up_proj": "w3"}
EXPERT = re.compile(r"(\.experts\.\d+\.)(gate_proj|up_proj|down_proj)(?=\.)")
WEIGHTS = ("weight", "weight_packed")


def restore_names(out: Path, source: Source) -> None:
    """Rename what has another name than in the original; a layer that is then still missing is an error."""
    wanted = {_inner(tensor.module) for tensor in source.quantized if len(tensor.shape) == 2}
    files = sorted(out.glob("*.safetensors"))
    if any(re.search(r"\.experts\.\d+\.w1$", module) for module in wanted):
        for path in files:
            _rename(path)
        _rename_index(out / INDEX)
    there = {
        _inner(name.rpartition(".")[0])
        for path in files
        for name in _entries(path)
        if name.rpartition(".")[2] in WEIGHTS
    }
    if gone := sorted(wanted - there):
        fail(
            "quantization-failed",
            f"{len(gone)} layers have other names than in the original",
            [f"`{name}` is not there" for name in gone[:3]],
            ["an engine would not find them: this architecture cannot be quantized with this version"],
        )


def renamed(name: str) -> str:
    return EXPERT.sub(lambda found: found[1] + LIKE_MIXTRAL[found[2]], name)


def _inner(module: str) -> str:
    """From the block on: what stands before it differs between a model and the model inside of it."""
    found = re.search(r"\w+\.\d+\..*$", module)
    return found[0] if found else module


def _entries(path: Path) -> dict[str, object]:
    with path.open("rb") as stream:
        length = int.from_bytes(stream.read(8), "little")
        return {k: v for k, v in json.loads(stream.read(length)).items() if k != "__metadata__"}


def _rename(path: Path) -> None:
    """In the header alone, which keeps its length: the new names are shorter."""
    with path.open("r+b") as stream:
        length = int.from_bytes(stream.read(8), "little")
        old: Mapping[str, object] = json.loads(stream.read(length))
        text = json.dumps({renamed(name): entry for name, entry in old.items()}, separators=(",", ":"))
        stream.seek(8)
        stream.write(text.encode().ljust(length))
        stream.flush()
        os.fsync(stream.fileno())


def _rename_index(path: Path) -> None:
    if not path.exists():
        return
    index = json.loads(path.read_text(encoding="utf-8"))
    index["weight_map"] = {renamed(name): file for name, file in sorted(index["weight_map"].items())}
    path.write_text(json.dumps(index, indent=2) + "\n", encoding="utf-8")

"""What a quantizing worker knows of a checkpoint before it loads it: tensors, what is left out, and why.

Standard library only: a checkpoint that cannot be quantized is refused before torch is imported.
"""

import json
import re
import shutil
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from math import prod
from pathlib import Path
from typing import Any

from _checkpoint import check_weights, read_config, read_json, require_tokenizer
from _contract import fail

INDEX = "model.safetensors.index.json"
FLOATS = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2}
COPIED = (".json", ".txt", ".model", ".jinja", ".tiktoken")
LARGEST_COPY = 256 << 20
CHUNK = 8 << 20
LEAST_GROUP = 32
"""Columns of the smallest group of integers that vLLM's kernels take (Marlin: 32, 64, 128)."""

# What keeps its precision whoever asks, by the name of its module. The first that matches gives the reason.
KEPT: tuple[tuple[str, str], ...] = (
    (r"(^|\.)(lm_head|embed_out|output_projection)$", "the head: its errors are errors of every token"),
    (
        r"(embed|embeddings|wte|wpe|position_ids|relative_attention_bias)",
        "a table: it is looked up, not multiplied",
    ),
    (
        r"(^|\.)(gate|router|wg|shared_expert_gate)$|\.router\.",
        "a router: a small error sends tokens to other experts",
    ),
    (
        r"(^|\.)(pooler|classifier|score|classification_head|linear_head|dense)(\.(dense|out_proj))?$",
        "one small layer that decides the answer",
    ),
    (
        r"(^|\.)(visual|vision_tower|vision_model|audio_tower|multi_modal_projector|mm_projector)\.",
        "an encoder of other inputs: texts do not calibrate it",
    ),
    (r"(^|\.)(mtp|nextn)(\.|$)", "predicts further tokens: it is not loaded in normal service"),
    (r"(^|\.)(conv1d|in_proj_a|in_proj_b|in_proj_ba|dt_proj|x_proj)$", "small, and steers a recurrent state"),
    (r"(^|\.)indexer\.", "selects what attention sees"),
)


@dataclass(frozen=True, kw_only=True)
class Tensor:
    """One tensor of the checkpoint as its header describes it; `start` counts from the file's first byte."""

    name: str
    file: str
    dtype: str
    shape: tuple[int, ...]
    start: int
    bytes: int

    @property
    def module(self) -> str:
        return self.name.rpartition(".")[0]

    @property
    def is_matrix(self) -> bool:
        """A weight that a linear layer may multiply by; experts may lie in one stack of matrices."""
        kind = self.name.rpartition(".")[2]
        stacked = len(self.shape) == 3 and kind in ("gate_up_proj", "down_proj")
        return self.dtype in FLOATS and (stacked or (len(self.shape) == 2 and kind == "weight"))


@dataclass(frozen=True, kw_only=True)
class Source:
    """A checkpoint that may be quantized. `left` maps modules that keep their precision to the reason."""

    folder: Path
    config: Mapping[str, Any]
    tensors: tuple[Tensor, ...]
    left: Mapping[str, str]
    group_size: int
    notes: tuple[str, ...] = ()

    @property
    def quantized(self) -> list[Tensor]:
        return [t for t in self.tensors if t.is_matrix and t.module not in self.left]

    @property
    def files(self) -> list[str]:
        return sorted({tensor.file for tensor in self.tensors})


def read_source(request: Mapping[str, Any]) -> Source:
    """Look at a checkpoint and decide what will be quantized; every defect of it fails here.

    `group_size` of the request is wished for: the largest divisor of it that divides the columns is taken.
    """
    folder = Path(request["source"])
    config = read_config(folder)
    check_weights(folder)
    require_tokenizer(folder)
    tensors = tuple(read_tensors(folder))
    notes = _tied(folder, config, tensors)
    left = kept_modules(tensors, request.get("exclude") or ())
    matrices = [t for t in tensors if t.is_matrix and t.module not in left]
    if not matrices:
        fail(
            "nothing-to-quantize",
            "no layer of this model may be quantized",
            [f"{name}: {why}" for name, why in list(left.items())[:3]],
        )
    wished = int(request.get("group_size") or 0)
    size = fitting_group(wished, {t.module: t.shape[-1] for t in matrices})
    if size != wished:
        notes.append(f"groups of {size}: groups of {wished} do not divide the columns of every layer")
    return Source(
        folder=folder, config=config, tensors=tensors, left=left, group_size=size, notes=tuple(notes)
    )


def read_tensors(folder: Path) -> list[Tensor]:
    """All tensors, file by file; what an index names must be in its file."""
    index = folder / INDEX
    wanted: dict[str, str] = read_json(index)["weight_map"] if index.exists() else {}
    names = sorted(set(wanted.values())) or sorted(path.name for path in folder.glob("*.safetensors"))
    found = [tensor for name in names for tensor in _header(folder / Path(name).name)]
    gone = sorted(set(wanted) - {tensor.name for tensor in found})
    if gone:
        fail(
            "broken-checkpoint",
            f"{INDEX} names {len(gone)} tensors that are in no file",
            gone[:3],
            ["download the checkpoint again"],
        )
    twice = {t.name for t in found if sum(t.name == other.name for other in found) > 1} if wanted else set()
    return [t for t in found if t.name not in twice or wanted[t.name] == t.file]


def _header(path: Path) -> list[Tensor]:
    with path.open("rb") as stream:
        (length,) = struct.unpack("<Q", stream.read(8))
        entries = json.loads(stream.read(length))
    return [
        Tensor(
            name=name,
            file=path.name,
            dtype=entry["dtype"],
            shape=tuple(entry["shape"]),
            start=8 + length + entry["data_offsets"][0],
            bytes=entry["data_offsets"][1] - entry["data_offsets"][0],
        )
        for name, entry in sorted(entries.items(), key=lambda item: item[1].get("data_offsets", [0])[0])
        if name != "__metadata__"
    ]


def kept_modules(tensors: Iterable[Tensor], exclude: Sequence[str]) -> dict[str, str]:
    """Modules with a matrix that keep their precision, and why. `exclude` are names or patterns with `*`."""
    left: dict[str, str] = {}
    for tensor in tensors:
        if not tensor.is_matrix:
            continue
        module = tensor.module
        asked = next((p for p in exclude if fnmatchcase(module, p) or fnmatchcase(module, f"*.{p}")), None)
        if asked:
            left[module] = f"excluded by `{asked}`"
            continue
        why = next((why for pattern, why in KEPT if re.search(pattern, module)), None)
        if why and not _inside_block(module, why):
            left[module] = why
    return left


def _inside_block(module: str, why: str) -> bool:
    """`dense` is also what encoders call the output of a block's attention: that one is quantized."""
    return why.startswith("one small layer") and bool(re.search(r"(layers?|h|blocks?)\.\d+\.", module))


def fitting_group(wished: int, columns: Mapping[str, int]) -> int:
    """The largest of wished, wished/2, ... that divides the columns of all modules; 0 (a row) stays 0."""
    widths, size, least = set(columns.values()), wished, min(wished, LEAST_GROUP)
    while size and size >= least:
        if all(width % size == 0 for width in widths):
            return size
        size //= 2
    if wished:
        odd = [module for module, width in columns.items() if width % least]
        kinds = {re.sub(r"\d+", "*", module): columns[module] for module in odd}
        last = sorted({kind.rpartition(".")[2] for kind in kinds})
        leave = " ".join(f"--exclude {name}" for name in last)
        fail(
            "group-size",
            f"no group size from {wished} to {least} divides the columns of every layer",
            [f"`{kind}` has {width}" for kind, width in list(kinds.items())[:5]],
            [f"leave them in 16 bits: {leave}", "or take a scheme with one scale a row (int8, fp8)"]
            if len(odd) < len(columns)
            else ["take a scheme with one scale a row (int8, fp8)"],
        )
    return 0


def reasons(source: Source) -> list[str]:
    """One line for each reason: what keeps its precision, and why."""
    by_reason: dict[str, list[str]] = {}
    for module, why in source.left.items():
        by_reason.setdefault(why, []).append(module)
    lines = []
    for why, modules in by_reason.items():
        shown = modules[0] if len(modules) == 1 else f"{_pattern(modules)} ({len(modules)})"
        lines.append(f"{shown} keeps its precision: {why}")
    if source.config.get("tie_word_embeddings") and not any("head" in name for name in source.left):
        lines.append("the head is the embedding table (tied) and keeps its precision")
    return lines


def _pattern(modules: Sequence[str]) -> str:
    starred = {re.sub(r"\d+", "*", module) for module in modules}
    return starred.pop() if len(starred) == 1 else f"{modules[0]}, ..."


def ignored(source: Source) -> list[str]:
    """What the quantization config lists as left out: short patterns, and the head even where it is tied."""
    names = {"lm_head"} if "ForCausalLM" in str(source.config["architectures"]) else set()
    for module in source.left:
        pattern = re.sub(r"(?<=\.)\d+(?=\.|$)", r"\\d+", re.escape(module).replace("\\.", "."))
        names.add(module if pattern == re.escape(module) or "\\d" not in pattern else f"re:{_dots(pattern)}$")
    return sorted(names)


def _dots(pattern: str) -> str:
    return re.sub(r"(?<!\\)\.", r"\\.", pattern)


def _tied(folder: Path, config: Mapping[str, Any], tensors: Sequence[Tensor]) -> list[str]:
    """A head that is declared tied to the embedding may be stored too, and must then be the same."""
    if not config.get("tie_word_embeddings"):
        return []
    head = next((t for t in tensors if t.name == "lm_head.weight"), None)
    table = next((t for t in tensors if t.name.endswith("embed_tokens.weight")), None)
    if head is None or table is None:
        return []
    if (head.dtype, head.shape) != (table.dtype, table.shape) or not _same(folder, head, table):
        fail(
            "broken-checkpoint",
            "the head is declared tied to the embedding table, and is stored with other numbers",
            [f"{head.name} and {table.name} differ"],
            ["set tie_word_embeddings to false in config.json if the head was trained on its own"],
        )
    return [f"{head.name} is stored twice (it is tied to {table.name}); both copies are the same"]


def _same(folder: Path, one: Tensor, other: Tensor) -> bool:
    with (folder / one.file).open("rb") as a, (folder / other.file).open("rb") as b:
        a.seek(one.start)
        b.seek(other.start)
        left = one.bytes
        while left:
            size = min(left, CHUNK)
            if a.read(size) != b.read(size):
                return False
            left -= size
    return True


def copy_beside(source: Path, out: Path) -> None:
    """Everything that belongs to the model but its weights: tokenizer, templates, pooling, generation."""
    for path in sorted(source.rglob("*")):
        inside = path.relative_to(source)
        hidden = any(part.startswith(".") for part in inside.parts)
        if hidden or len(inside.parts) > 2 or not path.is_file() or path.name in (INDEX, "mopt.json"):
            continue
        known = path.suffix in COPIED or path.name.startswith("LICENSE") or path.suffix == ".safetensors"
        if path.suffix == ".safetensors" and len(inside.parts) == 1:
            continue
        if known and path.stat().st_size <= LARGEST_COPY and not (out / inside).exists():
            (out / inside).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, out / inside)


def write_about(out: Path, request: Mapping[str, Any], about: Mapping[str, Any]) -> None:
    """mopt.json: what this product says of the folder."""
    facts = {"task": request.get("task"), "scheme": request["scheme"], **about}
    (out / "mopt.json").write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")


def parameters(tensors: Iterable[Tensor]) -> int:
    return sum(prod(tensor.shape) for tensor in tensors)

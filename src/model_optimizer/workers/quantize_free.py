"""Quantize a checkpoint that needs no data, tensor by tensor, by llm-compressor's model-free converter.

Request: {source, out, scheme, preset, group_size, exclude, task, work}; `preset` is a scheme of
compressed-tensors. The library's own entry point loads whole files; here one tensor is in memory at a time,
and the rest is copied in small pieces. A finished file of weights lies in the folder `work` until all are, so
that a job that was killed goes on behind the last one.

Result: {versions, notes, weights}.
"""

import contextlib
import importlib.abc
import importlib.machinery
import importlib.metadata
import json
import logging
import os
import re
import sys
import types
import warnings
from collections.abc import Generator, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

sys.path.append(str(Path(__file__).resolve().parent))
from _checkpoint import read_json
from _contract import blame, fail, main, progress
from _quantize_source import (
    CHUNK,
    FLOATS,
    INDEX,
    Source,
    Tensor,
    copy_beside,
    ignored,
    parameters,
    read_source,
    reasons,
    write_about,
)

PACKAGES = ("llmcompressor", "compressed-tensors", "torch")
BLOCK = 128
STACKED = ("q_proj", "k_proj", "query", "key", "gate_proj", "w1")
ENTRY = 160
"""Bytes of header that a tensor takes besides the name of what it was made from, at most."""
OUTPUTS = 4
"""Tensors that a quantized one becomes, at most: numbers, scale, zero point, shape."""


def job(request: dict[str, Any]) -> dict[str, Any]:
    source = read_source(request)
    for line in reasons(source):
        progress(line)
    quiet()
    progress("loading llm-compressor", 0.0)
    converter = make_converter(source, request["preset"])
    work = Path(request["work"])
    work.mkdir(parents=True, exist_ok=True)
    done = [name for name in source.files if (work / name).exists()]
    if done:
        progress(f"{len(done)} of {len(source.files)} files were finished before")
    total = sum(tensor.bytes for tensor in source.tensors)
    seen = 0
    for name in source.files:
        tensors = [tensor for tensor in source.tensors if tensor.file == name]
        if name not in done:
            write_file(source, tensors, converter, work / name, seen, total)
        seen += sum(tensor.bytes for tensor in tensors)
    return finish_folder(request, source, converter, work)


def quiet() -> None:
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    os.environ.setdefault("LLM_COMPRESSOR_LOG_LEVEL", "WARNING")


def make_converter(source: Source, preset: str) -> Any:
    """llm-compressor's converter for a preset, with the group size that fits this model."""
    with standing_in_for_datasets():
        from compressed_tensors.quantization import (
            QuantizationConfig,
            QuantizationStatus,
            preset_name_to_scheme,
        )
        from llmcompressor.entrypoints.model_free.converter import ModelFreePtqConverter
        from llmcompressor.entrypoints.model_free.validate import validate_config
    require_blocks(source, preset)
    scheme = preset_name_to_scheme(preset, ["Linear"])
    if source.group_size and scheme.weights.group_size:
        scheme.weights.group_size = source.group_size
    elif source.group_size and preset == "W8A16":
        scheme.weights.strategy, scheme.weights.group_size = "group", source.group_size
    config = QuantizationConfig(
        config_groups={"group_0": scheme},
        quantization_status=QuantizationStatus.INITIALIZED,
        ignore=ignored(source),
    )
    return ModelFreePtqConverter(validate_config(config, None, ()))


def require_blocks(source: Source, preset: str) -> None:
    """Engines stack q, k and v, and gate and up: a block of 128 rows must not reach from one to the next."""
    if preset != "FP8_BLOCK":
        return
    for tensor in source.quantized:
        kind = tensor.module.rpartition(".")[2]
        if kind in STACKED and tensor.shape[0] % BLOCK:
            fail(
                "group-size",
                f"blocks of {BLOCK} do not divide the {tensor.shape[0]} rows of `{tensor.module}`",
                ["vLLM stacks it with its neighbours and refuses such a checkpoint"],
                ["`--scheme fp8` has one scale a row and fits any shape"],
            )


@contextlib.contextmanager
def standing_in_for_datasets() -> Generator[None]:
    """Importing llm-compressor imports `datasets`, and with it pandas and pyarrow: 117 MB that data-free
    work never uses. Names that stand in for it keep them out; if it is loaded already, nothing is done."""
    if "datasets" in sys.modules:
        yield
        return
    finder = _StandIn()
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
        for name in [name for name in sys.modules if name.partition(".")[0] == "datasets"]:
            del sys.modules[name]


class _StandIn(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds `datasets` and all that is below it; every name of theirs is an empty class."""

    def find_spec(self, name: str, *_rest: object) -> importlib.machinery.ModuleSpec | None:
        mine = name.partition(".")[0] == "datasets"
        return importlib.machinery.ModuleSpec(name, self, is_package=True) if mine else None

    def exec_module(self, module: types.ModuleType) -> None:
        def empty(name: str) -> type:
            if name.startswith("__"):
                raise AttributeError(name)
            return type(name, (), {})

        vars(module)["__getattr__"] = empty


def write_file(
    source: Source, tensors: list[Tensor], converter: Any, target: Path, seen: int, total: int
) -> None:
    """One file of weights, under a temporary name until it is whole."""
    beside = target.with_name(f"{target.name}.part")
    entries: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    room = 8 * ((ENTRY + sum(_entry_bytes(tensor) for tensor in tensors)) // 8 + 1)
    position, last = 0, ""
    with (source.folder / target.name).open("rb") as given, beside.open("wb") as out:
        out.seek(8 + room)
        for tensor in tensors:
            if (block := block_of(tensor)) != last:
                progress(f"quantizing {block}", 0.05 + 0.9 * seen / total)
                last = block
            for name, dtype, shape, data in converted(source, tensor, converter, given):
                size = sum(out.write(piece) for piece in data)
                entries[name] = {"dtype": dtype, "shape": shape, "data_offsets": [position, position + size]}
                position += size
            seen += tensor.bytes
        header = json.dumps(entries, separators=(",", ":")).encode()
        if len(header) > room:
            fail("tool-failed", "the header of a file of weights is larger than was reserved for it")
        out.seek(0)
        out.write(room.to_bytes(8, "little"))
        out.write(header.ljust(room))
        out.flush()
        os.fsync(out.fileno())
    beside.replace(target)


def block_of(tensor: Tensor) -> str:
    """The layer of the model that a tensor belongs to, as far as its number."""
    found = re.match(r"(.*?\.\d+)\.", tensor.name)
    return found[1] if found else tensor.module


def _entry_bytes(tensor: Tensor) -> int:
    each = len(tensor.name.encode()) + ENTRY
    if not tensor.is_matrix:
        return each
    return OUTPUTS * each * (2 * tensor.shape[0] if len(tensor.shape) == 3 else 1)


Written = tuple[str, str, list[int], Iterator[Any]]


def converted(source: Source, tensor: Tensor, converter: Any, given: BinaryIO) -> Iterator[Written]:
    """What one tensor becomes: (name, dtype, shape, its bytes in pieces)."""
    if not tensor.is_matrix or tensor.module in source.left:
        yield tensor.name, tensor.dtype, list(tensor.shape), copied(tensor, given)
        return
    import torch

    given.seek(tensor.start)
    raw = bytearray(tensor.bytes)
    given.readinto(raw)
    weight = torch.frombuffer(raw, dtype=_kinds()[tensor.dtype]).view(tensor.shape)
    require_finite(weight, tensor)
    try:
        made: Mapping[str, torch.Tensor] = converter.process({tensor.name: weight})
    except Exception as error:  # noqa: BLE001 - a library's failure, in one line
        blame(error, "quantization-failed", f"`{tensor.name}` cannot be quantized this way")
    if tensor.name in made and made[tensor.name].dtype == weight.dtype:
        fail("quantization-failed", f"`{tensor.name}` was left as it is by llm-compressor")
    names = {kind: name for name, kind in _kinds().items()}
    for name, value in made.items():
        flat = value.contiguous().view(-1).view(torch.uint8)
        yield name, names[value.dtype], list(value.shape), iter([memoryview(flat.numpy())])


def copied(tensor: Tensor, given: BinaryIO) -> Iterator[bytes]:
    """The bytes of a tensor that stays as it is; numbers that are not finite are refused here too."""
    import torch

    given.seek(tensor.start)
    left = tensor.bytes
    while left:
        piece = given.read(min(left, CHUNK))
        if tensor.dtype in FLOATS:
            require_finite(torch.frombuffer(bytearray(piece), dtype=_kinds()[tensor.dtype]), tensor)
        left -= len(piece)
        yield piece


def require_finite(values: Any, tensor: Tensor) -> None:
    if not values.isfinite().all():
        fail(
            "broken-checkpoint",
            f"`{tensor.name}` holds numbers that are not finite",
            [f"in {tensor.file}"],
            ["the checkpoint is damaged or its training diverged: take another one"],
        )


def _kinds() -> dict[str, Any]:
    import torch

    return {
        "F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16,
        "F8_E4M3": torch.float8_e4m3fn, "F8_E5M2": torch.float8_e5m2, "I64": torch.int64, "I32": torch.int32,
        "I16": torch.int16, "I8": torch.int8, "U8": torch.uint8, "BOOL": torch.bool,
    }  # fmt: skip


def finish_folder(request: dict[str, Any], source: Source, converter: Any, work: Path) -> dict[str, Any]:
    """Move the files of weights, and write what belongs beside them."""
    from llmcompressor.entrypoints.model_free.save_utils import update_config

    progress("writing the folder", 0.97)
    out = Path(request["out"])
    copy_beside(source.folder, out)
    drop_empty_description(out)
    update_config(out, converter.config)
    for name in source.files:
        (work / name).replace(out / name)
    if len(source.files) > 1:
        write_index(out, source.files)
    scheme = converter.config.config_groups["group_0"].weights
    weights = {
        "quantized": len(source.quantized),
        "parameters": parameters(source.quantized),
        "bits": scheme.num_bits,
        "group_size": source.group_size,
        "symmetric": scheme.symmetric,
    }
    write_about(out, request, {"weights": weights})
    return {
        "versions": {name: importlib.metadata.version(name) for name in PACKAGES},
        "weights": weights,
        "notes": [
            f"{len(source.quantized)} weight matrices, rounded without data",
            *reasons(source),
            *source.notes,
        ],
    }


def drop_empty_description(out: Path) -> None:
    """`"quantization_config": null` says that nothing is quantized; the library takes it for one."""
    config = read_json(out / "config.json")
    for name in [n for n in ("quantization_config", "compression_config") if not config.get(n, True)]:
        del config[name]
        (out / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")


def write_index(out: Path, files: list[str]) -> None:
    from _quantize_source import _header

    found = [tensor for name in files for tensor in _header(out / name)]
    index = {
        "metadata": {"total_size": sum(tensor.bytes for tensor in found)},
        "weight_map": {tensor.name: tensor.file for tensor in found},
    }
    (out / INDEX).write_text(json.dumps(index, indent=2, sort_keys=True) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(job)

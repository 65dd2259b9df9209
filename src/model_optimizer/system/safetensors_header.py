"""The header of a safetensors file: names, shapes and number formats of its tensors, without its weights.

The file is foreign input. Its header is at most 100 MB (the limit of the format), must fit into the file,
and its tensors must fill the rest of the file without holes; anything else is a UsageError.
Source of the layout: the safetensors format description, https://github.com/huggingface/safetensors.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path

import msgspec

from model_optimizer.core import UsageError
from model_optimizer.core.units import show_bytes

LARGEST_HEADER = 100_000_000

BITS = {
    "BOOL": 8, "U8": 8, "I8": 8, "F8_E5M2": 8, "F8_E4M3": 8, "F8_E8M0": 8, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8,
    "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6, "U16": 16, "I16": 16, "F16": 16, "BF16": 16, "U32": 32, "I32": 32,
    "F32": 32, "U64": 64, "I64": 64, "F64": 64, "C64": 64,
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Tensor:
    """One tensor as it is stored; `dtype` is the format's own word (`BF16`, `F8_E4M3`, `I32`).

    `start` is where its content begins, counted from the end of the header.
    """

    dtype: str
    shape: tuple[int, ...]
    bytes: int
    start: int = 0

    @property
    def elements(self) -> int:
        return prod(self.shape)


class _Entry(msgspec.Struct):
    dtype: str
    shape: tuple[int, ...]
    data_offsets: tuple[int, int]


def read(path: Path) -> Mapping[str, Tensor]:
    """The tensors of one file by name. Raises UsageError for a file that is cut off or not safetensors."""
    try:
        if not path.is_file() and path.exists():  # a pipe would be waited for
            raise _broken(str(path), "it is no file")
        with path.open("rb") as stream:
            size = path.stat().st_size
            length = int.from_bytes(stream.read(8), "little") if size >= 8 else None
            if length is not None and length <= min(LARGEST_HEADER, size - 8):
                return parse(stream.read(length), size - 8 - length, str(path))
    except OSError as error:
        raise UsageError(f"`{path}` cannot be read", cause=(error.strerror or str(error),)) from error
    if length is None:
        raise _broken(str(path), f"it has {size} bytes, and a safetensors file has at least 8")
    if length > LARGEST_HEADER:
        raise _broken(str(path), f"its header claims {show_bytes(length)}, and the format allows 100 MB")
    raise _broken(str(path), f"its header claims {length} bytes, and the file has {size}")


def content(path: Path, tensor: Tensor, *, chunk: int = 1 << 20) -> Iterator[bytes]:
    """The bytes of a tensor that `read` found in this file, in pieces of at most `chunk` bytes."""
    try:
        with path.open("rb") as stream:
            length = int.from_bytes(stream.read(8), "little")
            stream.seek(8 + length + tensor.start)
            left = tensor.bytes
            while left and (piece := stream.read(min(chunk, left))):
                left -= len(piece)
                yield piece
    except OSError as error:
        raise UsageError(f"`{path}` cannot be read", cause=(error.strerror or str(error),)) from error
    if left:
        raise _broken(str(path), f"it ends {left} bytes before its last tensor")


def parse(header: bytes, data_bytes: int, name: str) -> Mapping[str, Tensor]:
    """Decode a header whose tensors take `data_bytes` after it."""
    try:
        raw = msgspec.json.decode(header, type=dict[str, msgspec.Raw])
        raw.pop("__metadata__", None)
        entries = {key: msgspec.json.decode(value, type=_Entry) for key, value in raw.items()}
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise _broken(name, f"its header is not valid: {error}") from error
    _check(entries, data_bytes, name)
    return {
        key: Tensor(
            dtype=e.dtype,
            shape=e.shape,
            bytes=e.data_offsets[1] - e.data_offsets[0],
            start=e.data_offsets[0],
        )
        for key, e in entries.items()
    }


def _check(entries: Mapping[str, _Entry], data_bytes: int, name: str) -> None:
    """Offsets must be those of the shapes, and the tensors must fill the data one after another."""
    end = 0
    for key, entry in sorted(entries.items(), key=lambda item: item[1].data_offsets):
        start, stop = entry.data_offsets
        if any(side < 0 for side in entry.shape):
            raise _broken(name, f"`{key[:80]}` has a negative size")
        bits = BITS.get(entry.dtype)
        if bits is not None and (stop - start) * 8 != prod(entry.shape) * bits:
            raise _broken(name, f"`{key[:80]}` has {stop - start} bytes, which its shape does not need")
        if start != end or stop < start:
            raise _broken(name, f"`{key[:80]}` does not begin where the tensor before it ends")
        end = stop
    if end > data_bytes:
        raise _broken(name, f"it is cut off: {end - data_bytes} of {end} bytes of weights are missing")
    if end < data_bytes:
        raise _broken(name, f"{data_bytes - end} bytes at its end belong to no tensor")


def _broken(name: str, cause: str) -> UsageError:
    return UsageError(
        f"`{name}` is not a whole safetensors file",
        cause=(cause,),
        hint=(
            "copy or download this file again; a Git LFS pointer (some hundred bytes) is not the file itself",
        ),
        reference="safetensors",
    )

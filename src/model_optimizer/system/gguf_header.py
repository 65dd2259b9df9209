"""The header of a GGUF file: its metadata and its tensors' sizes, without the weights.

The file is foreign input: every count and length is checked against a limit and against the file before it
is used. Source of the layout: docs/gguf.md of ggml; versions 2 and 3, little endian.
"""

import mmap
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path

from model_optimizer.core import GgufModel, ModelSpec, UsageError
from model_optimizer.core.units import show_bytes

MOST_TENSORS = 100_000
MOST_KEYS = 100_000
MOST_ITEMS = 5_000_000
LONGEST_TEXT = 16 << 20

# (numbers in a block, bytes of a block) by ggml's number of the type.
BLOCKS: dict[int, tuple[str, int, int]] = {
    0: ("F32", 1, 4), 1: ("F16", 1, 2), 2: ("Q4_0", 32, 18), 3: ("Q4_1", 32, 20), 6: ("Q5_0", 32, 22),
    7: ("Q5_1", 32, 24), 8: ("Q8_0", 32, 34), 9: ("Q8_1", 32, 36), 10: ("Q2_K", 256, 84),
    11: ("Q3_K", 256, 110), 12: ("Q4_K", 256, 144), 13: ("Q5_K", 256, 176), 14: ("Q6_K", 256, 210),
    15: ("Q8_K", 256, 292), 16: ("IQ2_XXS", 256, 66), 17: ("IQ2_XS", 256, 74), 18: ("IQ3_XXS", 256, 98),
    19: ("IQ1_S", 256, 50), 20: ("IQ4_NL", 32, 18), 21: ("IQ3_S", 256, 110), 22: ("IQ2_S", 256, 82),
    23: ("IQ4_XS", 256, 136), 24: ("I8", 1, 1), 25: ("I16", 1, 2), 26: ("I32", 1, 4), 27: ("I64", 1, 8),
    28: ("F64", 1, 8), 29: ("IQ1_M", 256, 56), 30: ("BF16", 1, 2), 34: ("TQ1_0", 256, 54),
    35: ("TQ2_0", 256, 66), 39: ("MXFP4", 32, 17),
}  # fmt: skip
_NUMBERS = {
    0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d",
}  # fmt: skip
_TEXT, _ARRAY = 8, 9

Value = int | float | bool | str | tuple[int, ...] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Tensor:
    """`format` is the word of llama.cpp for the type (`Q4_K`), `shape` has the fastest dimension first."""

    format: str
    shape: tuple[int, ...]
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """`keys` has numbers, texts and short arrays of whole numbers; other arrays are None, `lengths` has
    how long they are."""

    keys: Mapping[str, Value]
    lengths: Mapping[str, int]
    tensors: Mapping[str, Tensor]


class _Cut(Exception):
    """The file ends before what it promises, or promises more than any file has."""


class _Reader:
    def __init__(self, data: mmap.mmap) -> None:
        self._data, self._at = data, 0

    def take(self, code: str) -> int:
        size = struct.calcsize(code)
        if self._at + size > len(self._data):
            raise _Cut("it ends within its header")
        (value,) = struct.unpack_from(f"<{code}", self._data, self._at)
        self._at += size
        return value

    def text(self) -> str:
        length = self.take("Q")
        if length > LONGEST_TEXT or self._at + length > len(self._data):
            raise _Cut(f"a text claims {length} bytes")
        raw = self._data[self._at : self._at + length]
        self._at += length
        return raw.decode("utf-8", "replace")

    def skip(self, count: int) -> None:
        self._at += count
        if self._at > len(self._data):
            raise _Cut("it ends within its header")


def read(path: Path) -> Header:
    """The header of one file. UsageError for a file that is cut off or not GGUF."""
    try:
        size = path.stat().st_size
        with path.open("rb") as stream:
            if stream.read(4) != b"GGUF" or size < 24:
                raise _broken(path, "it does not begin as GGUF files do")
            with mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data:
                return _parse(_Reader(data), size)
    except _Cut as error:
        raise _broken(path, str(error)) from None
    except (OSError, ValueError) as error:
        raise UsageError(f"`{path}` cannot be read", cause=(str(error),)) from error


def _parse(reader: _Reader, size: int) -> Header:
    reader.skip(4)
    version = reader.take("I")
    if version not in (2, 3):
        raise _Cut(f"its version is {version}, and 2 and 3 are known")
    tensors, keys = reader.take("Q"), reader.take("Q")
    if tensors > MOST_TENSORS or keys > MOST_KEYS:
        raise _Cut(f"it claims {tensors} tensors and {keys} keys")
    found: dict[str, Value] = {}
    lengths: dict[str, int] = {}
    for _ in range(keys):
        name = reader.text()
        found[name], length = _value(reader, reader.take("I"))
        if length is not None:
            lengths[name] = length
    return Header(keys=found, lengths=lengths, tensors=_tensors(reader, tensors, size))


def _value(reader: _Reader, kind: int) -> tuple[Value, int | None]:
    if kind in _NUMBERS:
        return reader.take(_NUMBERS[kind]), None
    if kind == _TEXT:
        return reader.text(), None
    if kind != _ARRAY:
        raise _Cut(f"a key has the type {kind}, which is not known")
    inner, length = reader.take("I"), reader.take("Q")
    if length > MOST_ITEMS:
        raise _Cut(f"an array claims {length} items")
    if inner == _TEXT:
        for _ in range(length):
            reader.skip(_text_length(reader))
        return None, length
    if inner not in _NUMBERS:
        raise _Cut("an array holds what no array may hold")
    if length <= 4096 and inner in (0, 1, 2, 3, 4, 5, 7, 10, 11):
        return tuple(int(reader.take(_NUMBERS[inner])) for _ in range(length)), length
    reader.skip(length * struct.calcsize(_NUMBERS[inner]))
    return None, length


def _text_length(reader: _Reader) -> int:
    length = reader.take("Q")
    if length > LONGEST_TEXT:
        raise _Cut(f"a text claims {length} bytes")
    return length


def _tensors(reader: _Reader, count: int, size: int) -> dict[str, Tensor]:
    found: dict[str, Tensor] = {}
    for _ in range(count):
        name, dimensions = reader.text(), reader.take("I")
        if dimensions > 8:
            raise _Cut(f"a tensor claims {dimensions} dimensions")
        shape = tuple(reader.take("Q") for _ in range(dimensions))
        kind, _offset = reader.take("I"), reader.take("Q")
        if kind not in BLOCKS:
            raise _Cut(f"the tensor `{name[:60]}` has the type {kind}, which is not known")
        word, numbers, block = BLOCKS[kind]
        elements = prod(shape)
        if elements % numbers or elements // numbers * block > size:
            raise _Cut(f"the tensor `{name[:60]}` does not fit into the file")
        found[name] = Tensor(format=word, shape=shape, bytes=elements // numbers * block)
    return found


def model(path: Path) -> GgufModel:
    """The sizes that llama.cpp's memory follows from. UsageError when the header does not give them."""
    header = read(path)
    architecture = header.keys.get("general.architecture")
    if not isinstance(architecture, str):
        raise _broken(path, "it does not say which architecture it holds")
    layers = _whole(header, path, f"{architecture}.block_count")
    if layers > 10_000:
        raise _broken(path, f"it claims {layers} layers")
    by_layer = [0] * layers
    outer = {"input": 0, "output": 0}
    for name, tensor in header.tensors.items():
        number = name.removeprefix("blk.").partition(".")[0]
        if name.startswith("blk.") and number.isdigit() and int(number) < layers:
            by_layer[int(number)] += tensor.bytes
        else:
            outer["input" if name.startswith(("token_embd", "position_embd")) else "output"] += tensor.bytes
    if "output.weight" not in header.tensors:
        outer["output"] += (
            header.tensors["token_embd.weight"].bytes if "token_embd.weight" in header.tensors else 0
        )
    formats: dict[str, int] = {}
    for tensor in header.tensors.values():
        formats[tensor.format] = formats.get(tensor.format, 0) + tensor.bytes
    name = header.keys.get("general.name")
    window = header.keys.get(f"{architecture}.attention.sliding_window")
    total = sum(tensor.bytes for tensor in header.tensors.values())
    return GgufModel(
        name=name if isinstance(name, str) and name else path.stem,
        architecture=architecture,
        layers=tuple(by_layer),
        input_bytes=outer["input"],
        output_bytes=outer["output"],
        kv_widths=_kv_widths(header, path, architecture, layers),
        hidden_size=_whole(header, path, f"{architecture}.embedding_length"),
        intermediate_size=_largest(header, f"{architecture}.feed_forward_length"),
        vocab_size=_vocabulary(header, path, architecture),
        max_position=_optional(header, f"{architecture}.context_length"),
        window=window if isinstance(window, int) and window else None,
        format=max(formats, key=lambda word: formats[word], default="gguf"),
        because=f"{len(header.tensors)} tensors in the header, {show_bytes(total)}",
    )


def _kv_widths(header: Header, path: Path, architecture: str, layers: int) -> tuple[int, ...]:
    heads = header.keys.get(f"{architecture}.attention.head_count")
    kv = header.keys.get(f"{architecture}.attention.head_count_kv", heads)
    latent = _optional(header, f"{architecture}.attention.kv_lora_rank")
    if latent is not None:
        rope = _optional(header, f"{architecture}.rope.dimension_count") or 0
        return (latent + rope,) * layers
    first = heads if isinstance(heads, int) else max(heads) if isinstance(heads, tuple) and heads else 0
    if not first:
        raise _broken(path, "it does not say how many attention heads there are")
    default = _whole(header, path, f"{architecture}.embedding_length") // first
    key = _optional(header, f"{architecture}.attention.key_length") or default
    value = _optional(header, f"{architecture}.attention.value_length") or default
    each = kv if isinstance(kv, tuple) else (kv,) * layers
    if len(each) != layers or not all(isinstance(n, int) and 0 <= n < 1 << 20 for n in each):
        raise _broken(path, "its key-value heads do not go with its layers")
    return tuple(int(n or 0) * (key + value) for n in each)


def _vocabulary(header: Header, path: Path, architecture: str) -> int:
    found = _optional(header, f"{architecture}.vocab_size") or header.lengths.get("tokenizer.ggml.tokens")
    if found:
        return found
    table = header.tensors.get("token_embd.weight")
    if table is None:
        raise _broken(path, "it has no embedding")
    return table.shape[-1]


def _optional(header: Header, name: str) -> int | None:
    value = header.keys.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 1 << 40 else None


def _largest(header: Header, name: str) -> int:
    value = header.keys.get(name)
    return max(value, default=0) if isinstance(value, tuple) else _optional(header, name) or 0


def _whole(header: Header, path: Path, name: str) -> int:
    found = _optional(header, name)
    if found is None:
        raise _broken(path, f"`{name}` is missing or no whole number above zero")
    return found


def _broken(path: Path, cause: str) -> UsageError:
    return UsageError(
        f"`{path}` is not a whole GGUF file",
        cause=(cause,),
        hint=("download the file again; of a model in several files pass the first",),
        reference="model-gguf",
    )


def spec(found: GgufModel) -> ModelSpec:
    """As much of a ModelSpec as a GGUF header gives, for everything that asks for a model's name and size."""
    return ModelSpec(
        name=found.name,
        architecture=found.architecture,
        model_type=found.architecture,
        task="generate",
        parameters=0,
        active_parameters=0,
        embedding_parameters=0,
        layers=len(found.layers),
        hidden_size=found.hidden_size,
        intermediate_size=found.intermediate_size,
        vocab_size=found.vocab_size,
        heads=0,
        kv_heads=0,
        head_dim=0,
        attention="none",
        groups=(),
        max_position=found.max_position,
        provenance="the header of a GGUF file",
    )

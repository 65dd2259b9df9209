"""What an ONNX file says of itself: its opset, its inputs, and in which numbers its weights are.

The weights are stepped over, not read. The file is foreign input: every length is checked against what there
is before it is used, and anything else is a UsageError. Source of the layout: onnx.proto of ONNX, and the
wire format of protocol buffers.
"""

import mmap
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from math import prod
from pathlib import Path

from model_optimizer.core import UsageError

NUMBERS = {
    1: "fp32", 2: "int8", 3: "int8", 10: "fp16", 16: "bf16", 17: "fp8", 18: "fp8", 19: "fp8", 20: "fp8",
    21: "int4_rtn", 22: "int4_rtn",
}  # fmt: skip
"""Number formats by ONNX's number of the type. Whole numbers count only beside operators that use them."""
FLOATS = ("fp32", "fp16", "bf16")
BLOCKS = "com.microsoft::MatMulNBits"
BITS = {4: "int4_rtn", 8: "int8_weight"}
"""Its numbers lie packed in bytes: only the node says how many bits each has (4 where it does not)."""
QUANTIZED = frozenset(
    {
        "DequantizeLinear",
        "MatMulInteger",
        "ConvInteger",
        "QLinearMatMul",
        "QLinearConv",
        "com.microsoft::DynamicQuantizeMatMul",
        "com.microsoft::MatMulIntegerToFloat",
        "com.microsoft::QAttention",
        "com.microsoft::QGemm",
        BLOCKS,
    }
)
"""Operators that compute with whole numbers, or turn them into others."""
PICKLES = (b"PK\x03\x04", b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05")
MOST_MESSAGES = 5_000_000
MOST_AXES = 64
"""As many as NumPy takes; every runtime takes fewer."""
MOST_INNER = 8
"""Graphs inside of graphs (branches, loops): deeper ones are no network."""
MOST = 2**63 - 1

Span = tuple[int, int]
Dimension = int | str


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """`weights` counts the numbers in initializers by format; `inputs` are those that a caller gives."""

    opset: int
    operators: frozenset[str]
    weights: Mapping[str, int]
    inputs: Mapping[str, tuple[Dimension, ...]]
    outputs: tuple[str, ...]
    blocks: Mapping[int, int] = field(default_factory=dict[int, int])
    """Products with weights in blocks, by bits."""
    data: Mapping[str, int] = field(default_factory=dict[str, int])
    """Files beside the graph that hold weights, by the graph's names for them; the bytes each must have."""

    @property
    def parameters(self) -> int:
        return sum(self.weights.values())

    @property
    def scheme(self) -> str:
        """What most weights are in; where some are quantized, what those are in."""
        if self.blocks:
            bits = max(self.blocks, key=lambda bits: self.blocks[bits])
            return BITS.get(bits, f"int{bits} in blocks")
        if self.operators & QUANTIZED:
            narrow = {name: n for name, n in self.weights.items() if name not in FLOATS}
            if narrow:
                return max(narrow, key=lambda name: narrow[name])
        floats = {name: self.weights.get(name, 0) for name in FLOATS}
        return max(floats, key=lambda name: floats[name])


class _Broken(Exception):
    """The bytes are no such message."""


def read(path: Path) -> Header:
    """Raises UsageError for what is no ONNX file, with `pickle` as its reference where it is one."""
    try:
        if path.stat().st_size == 0:
            raise _Broken("it is empty")
        with path.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as content:
            if content[:4] in PICKLES or content[:2] in PICKLES:
                raise UsageError(
                    f"`{path.name}` is a pickle, which can run any code when it is opened",
                    hint=("save the weights as safetensors, with a config.json beside them",),
                    reference="pickle",
                )
            return _model(content)
    except (_Broken, ValueError, OSError, OverflowError) as error:
        raise UsageError(
            f"`{path.name}` is no ONNX file, or is cut off",
            cause=(str(error),),
            hint=("copy it again, or export the model again: `mopt convert MODEL --to onnx`",),
            reference="broken-artifact",
        ) from error


@dataclass(slots=True)
class _Found:
    """What is counted on the way through a graph and those inside of it."""

    operators: set[str] = field(default_factory=set[str])
    weights: Counter[str] = field(default_factory=Counter[str])
    blocks: Counter[int] = field(default_factory=Counter[int])
    data: dict[str, int] = field(default_factory=dict[str, int])


def _model(content: mmap.mmap) -> Header:
    opset, graph = 0, None
    for number, value in _fields(content, (0, len(content))):
        if number == 7 and isinstance(value, tuple):
            graph = value
        if number == 8 and isinstance(value, tuple):
            domain, version = _opset(content, value)
            if domain in ("", "ai.onnx"):
                opset = max(opset, version)
    if graph is None:
        raise _Broken("it holds no graph")
    found = _Found()
    inputs: dict[str, tuple[Dimension, ...]] = {}
    outputs: list[str] = []
    constants = _graph(content, graph, found, 0)
    for number, value in _fields(content, graph):
        if number == 11 and isinstance(value, tuple):
            name, shape = _value(content, value)
            inputs[name] = shape
        elif number == 12 and isinstance(value, tuple):
            outputs.append(_value(content, value)[0])
    if not found.operators:
        raise _Broken("its graph computes nothing")
    return Header(
        opset=opset,
        operators=frozenset(found.operators),
        weights=found.weights,
        inputs={name: shape for name, shape in inputs.items() if name not in constants},
        outputs=tuple(outputs),
        blocks=found.blocks,
        data=found.data,
    )


def _graph(content: mmap.mmap, span: Span, found: _Found, depth: int) -> set[str]:
    """Count what a graph and those inside of it hold; the names of its constants."""
    if depth > MOST_INNER:
        raise _Broken(f"it holds graphs inside of graphs, {depth} deep")
    constants: set[str] = set()
    for number, value in _fields(content, span):
        if number == 1 and isinstance(value, tuple):
            _operator(content, value, found, depth)
        elif number == 5 and isinstance(value, tuple):
            constants.add(_tensor(content, value, found))
    return constants


def _operator(content: mmap.mmap, span: Span, found: _Found, depth: int) -> None:
    """The kind of a node, `domain::Kind` where it is not of the standard; a constant counts as a weight."""
    kind = domain = ""
    bits = 4
    for number, value in _fields(content, span):
        if isinstance(value, tuple):
            if number == 4:
                kind = _text(content, value)
            elif number == 7:
                domain = _text(content, value)
            elif number == 5:
                bits = _attribute(content, value, found, depth) or bits
    named = f"{domain}::{kind}" if domain not in ("", "ai.onnx") else kind
    found.operators.add(named)
    if named == BLOCKS:
        found.blocks[bits] += 1


def _attribute(content: mmap.mmap, span: Span, found: _Found, depth: int) -> int | None:
    """Counts tensors and graphs in it. What the attribute `bits` says; None of another attribute."""
    name, whole = "", None
    for number, value in _fields(content, span):
        if isinstance(value, int):
            whole = value if number == 3 else whole
        elif number == 1:
            name = _text(content, value)
        elif number in (5, 10):
            _tensor(content, value, found)
        elif number in (6, 11):
            _graph(content, value, found, depth + 1)
    return whole if name == "bits" else None


def _tensor(content: mmap.mmap, span: Span, found: _Found) -> str:
    """The name of a constant; its numbers are counted by their format, and no more than there can be."""
    name, kind, beside, sizes, entries = "", 0, False, list[int](), dict[str, str]()
    for number, value in _fields(content, span):
        if number == 1:
            sizes += [value] if isinstance(value, int) else _packed(content, value)
            if len(sizes) > MOST_AXES:
                raise _Broken(f"a constant has more than {MOST_AXES} dimensions")
        elif isinstance(value, int):
            kind = value if number == 2 else kind
            beside = value == 1 if number == 14 else beside
        elif number == 8:
            name = _text(content, value)
        elif number == 13:
            key, text = (b"".join(_bytes(content, value, n)).decode("utf-8", "replace") for n in (1, 2))
            entries[key] = text
    count = prod(sizes)
    have = _noted(name, entries, count, found) if beside else span[1] - span[0]
    if count > 8 * have:
        raise _Broken(f"`{name[:80]}` says that it has more numbers than fit into its {have:,} bytes")
    if kind in NUMBERS:
        found.weights[NUMBERS[kind]] += count
    return name


def _noted(name: str, entries: Mapping[str, str], count: int, found: _Found) -> int:
    """The bytes of a constant that lies in another file, which is noted with the bytes it must have."""
    numbers = {key: entries.get(key, "0") for key in ("offset", "length")}
    if not all(text.isascii() and text.isdecimal() and len(text) < 20 for text in numbers.values()):
        raise _Broken(f"nothing says where `{name[:80]}` lies beside it: {numbers}"[:300])
    have = int(numbers["length"]) or -(-count // 8)
    where = entries.get("location", "")
    found.data[where] = max(found.data.get(where, 0), int(numbers["offset"]) + have)
    return have


def _value(content: mmap.mmap, span: Span) -> tuple[str, tuple[Dimension, ...]]:
    """A value's name and shape; a free dimension without a name gets one from its place."""
    name, dimensions = "", list[Span]()
    for number, value in _fields(content, span):
        if not isinstance(value, tuple):
            continue
        if number == 1:
            name = _text(content, value)
        elif number == 2:
            dimensions = [
                dimension
                for tensor in _inside(content, value, 1)
                for shape in _inside(content, tensor, 2)
                for dimension in islice(_inside(content, shape, 1), MOST_AXES + 1)
            ]
            if len(dimensions) > MOST_AXES:
                raise _Broken(f"`{name[:80]}` has more than {MOST_AXES} dimensions")
    return name, tuple(_size(content, one, f"{name}_{place}") for place, one in enumerate(dimensions))


def _size(content: mmap.mmap, span: Span, otherwise: str) -> Dimension:
    found: Dimension = otherwise
    for number, value in _fields(content, span):
        if number == 1 and isinstance(value, int):
            found = value if value <= MOST else otherwise  # -1, as some exporters write a free size
        elif number == 2 and isinstance(value, tuple):
            found = _text(content, value) or otherwise
    return found


def _opset(content: mmap.mmap, span: Span) -> tuple[str, int]:
    domain, version = "", 0
    for number, value in _fields(content, span):
        if number == 1 and isinstance(value, tuple):
            domain = _text(content, value)
        elif number == 2 and isinstance(value, int):
            version = value
    return domain, version


def _inside(content: mmap.mmap, span: Span, wanted: int) -> Iterator[Span]:
    return (value for n, value in _fields(content, span) if n == wanted and isinstance(value, tuple))


def _fields(content: mmap.mmap, span: Span) -> Iterator[tuple[int, int | Span]]:
    """The fields of a message: a number, or where the bytes of a longer one begin and end."""
    place, end = span
    for _ in range(MOST_MESSAGES):
        if place >= end:
            return
        key, place = _varint(content, place, end)
        number, wire = key >> 3, key & 7
        if number == 0:
            raise _Broken(f"no field begins at byte {place}")
        if wire == 0:
            value, place = _varint(content, place, end)
            yield number, value
        elif wire == 2:
            size, place = _varint(content, place, end)
            if place + size > end:
                raise _Broken(f"a part of {size:,} bytes begins at byte {place:,}, and the file ends before")
            yield number, (place, place + size)
            place += size
        elif wire in (1, 5):
            place += 8 if wire == 1 else 4
        else:
            raise _Broken(f"no field begins at byte {place}")
    raise _Broken("it has too many parts")


def _packed(content: mmap.mmap, span: Span) -> list[int]:
    """Sizes one after the other; beyond MOST_AXES the rest is left."""
    place, end = span
    found: list[int] = []
    while place < end and len(found) <= MOST_AXES:
        value, place = _varint(content, place, end)
        found.append(value)
    return found


def _bytes(content: mmap.mmap, span: Span, wanted: int) -> Iterator[bytes]:
    return (content[start:end] for start, end in _inside(content, span, wanted))


def _varint(content: mmap.mmap, place: int, end: int) -> tuple[int, int]:
    found = 0
    for shift in range(0, 70, 7):
        if place >= end:
            raise _Broken("it ends in the middle of a number")
        byte = content[place]
        place += 1
        found |= (byte & 0x7F) << shift
        if byte < 0x80:
            return found, place
    raise _Broken(f"no number ends at byte {place}")


def _text(content: mmap.mmap, span: Span) -> str:
    return content[span[0] : span[1]].decode("utf-8", errors="replace")

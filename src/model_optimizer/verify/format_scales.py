"""The values of scales: NaN, infinity, zero or less. Only scale tensors are read, a piece at a time."""

import math
import struct
from array import array
from collections.abc import Iterator
from functools import cache

from model_optimizer.core import Comparison, units

from .format_checkpoint import SCALES, Checkpoint, split
from .format_found import checked, remark

WIDTHS = {"F32": 4, "F16": 2, "BF16": 2, "F8_E4M3": 1, "F8_E5M2": 1}
MOST_BYTES = 4 << 30
"""Scales beyond this are not read: 4 GiB are those of a model of a trillion parameters in groups of 128."""


def values(checkpoint: Checkpoint) -> Iterator[Comparison]:
    """Every scale is a positive number."""
    names = [name for name in checkpoint.tensors if split(name)[1] in SCALES]
    if not names:
        return
    faults: list[str] = []
    count, size = 0, 0
    for name in names:
        tensor = checkpoint.tensors[name].tensor
        if tensor.dtype not in WIDTHS or size + tensor.bytes > MOST_BYTES:
            continue
        size += tensor.bytes
        count += tensor.elements
        if fault := _fault(checkpoint, name, tensor.dtype):
            faults.append(fault)
    if count:
        yield _judged(faults, count, size)
    if skipped := len(names) - sum(checkpoint.tensors[n].tensor.dtype in WIDTHS for n in names):
        yield remark(
            "scale_codes", f"{skipped} scales are exponents (E8M0) and cannot be zero", reference="MX"
        )


def _judged(faults: list[str], count: int, size: int) -> Comparison:
    return checked(
        "scale_values",
        faults,
        of=count,
        what=f"scales ({units.show_bytes(size)}) are finite and above zero",
        reference="one such scale turns a whole group, channel or layer into NaN or nothing",
        hint="calibrate again; an activation that was always zero gives a scale of zero",
    )


def _fault(checkpoint: Checkpoint, name: str, dtype: str) -> str | None:
    """The first value that no scale may have; None when there is none."""
    before = 0
    wrong: list[tuple[int, str]] = []
    rest = b""
    for piece in checkpoint.content(name):
        content = rest + piece
        whole = len(content) - len(content) % WIDTHS[dtype]
        rest = content[whole:]
        numbers = decode(content[:whole], dtype)
        wrong += [(before + at, word) for at, x in enumerate(numbers) if (word := _word(x))][: 2 - len(wrong)]
        before += len(numbers)
    if not wrong:
        return None
    at, word = wrong[0]
    return f"`{name}` has {word} at {at:,}"


def _word(value: float) -> str | None:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "infinity"
    if value == 0:
        return "zero"
    return "a negative number" if value < 0 else None


def decode(content: bytes, dtype: str) -> "array[float] | list[float]":
    """Little-endian numbers of one of the types of WIDTHS."""
    match dtype:
        case "F32":
            return array("f", content)
        case "F16":
            return list(struct.unpack(f"<{len(content) // 2}e", content))
        case "BF16":
            table = _bf16()
            return [table[code] for code in array("H", content)]
        case _:
            table = _fp8(dtype)
            return [table[code] for code in content]


@cache
def _bf16() -> "array[float]":
    return array("f", b"".join(struct.pack("<HH", 0, code) for code in range(1 << 16)))


@cache
def _fp8(dtype: str) -> tuple[float, ...]:
    return tuple(_number(code, 4 if dtype == "F8_E4M3" else 5) for code in range(256))


def _number(code: int, exponent_bits: int) -> float:
    """An 8-bit float: E4M3 without infinity (OCP FP8 1.0), or E5M2 with it."""
    fraction_bits = 7 - exponent_bits
    sign = -1.0 if code & 0x80 else 1.0
    exponent = (code & 0x7F) >> fraction_bits
    fraction = code & ((1 << fraction_bits) - 1)
    bias = (1 << (exponent_bits - 1)) - 1
    if exponent_bits == 4 and code & 0x7F == 0x7F:
        return math.nan
    if exponent_bits == 5 and exponent == 31:
        return math.nan if fraction else sign * math.inf
    if exponent == 0:
        return sign * math.ldexp(fraction, 1 - bias - fraction_bits)
    return sign * math.ldexp(1 + fraction / (1 << fraction_bits), exponent - bias)

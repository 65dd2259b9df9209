"""Requests of the Open Inference Protocol: tensors as JSON, of a wanted image size.

The numbers of a size are written once; only the first ones are new in every request, so that a server that
keeps answers by their content gains nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from random import Random

import msgspec

from model_optimizer.core import UsageError

from .images import size_of
from .prompts import Prompt

FRESH = 32
BLOCK = 4096
LARGEST = 64 << 20
NUMBERS = {"FP32": "0.{}", "FP16": "0.{}", "FP64": "0.{}", "BF16": "0.{}"}
"""How a drawn digit is written; whole numbers are the digit itself."""


class Taken(msgspec.Struct, frozen=True, kw_only=True):
    """An input as a server describes it. A size below 0 is free."""

    name: str
    datatype: str
    shape: tuple[int, ...] = ()


class Described(msgspec.Struct, frozen=True):
    """What a server says of a model."""

    inputs: tuple[Taken, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Tensors:
    """One request a call, each of one row. `side` is (width, height) for the free sides of an image."""

    inputs: Sequence[Taken]
    side: tuple[int, int] | None = None
    seed: int = 0
    kind: str = "made-up tensors"
    exact: bool = False

    def make(self, level: int, index: int, tokens: int, blocks: Sequence[int] = ()) -> Prompt:
        del tokens, blocks
        dice = Random(f"tensor/{self.seed}/{level}/{index}")
        return Prompt(members=b'"inputs":[' + b",".join(self._one(v, dice) for v in self.inputs) + b"]")

    def _one(self, value: Taken, dice: Random) -> bytes:
        shape = sizes(value, self.side)
        count = prod(shape)
        write = NUMBERS.get(value.datatype, "{}")
        fresh = min(FRESH, count)
        first = ",".join(write.format(dice.randrange(1, 10)) for _ in range(fresh)).encode()
        rest = _rest(count - fresh, write)
        head = b'{"name":%b,"shape":%b,"datatype":%b,"data":[' % tuple(
            msgspec.json.encode(part) for part in (value.name, shape, value.datatype)
        )
        return head + first + (b"," if rest else b"") + rest + b"]}"


def sizes(value: Taken, side: tuple[int, int] | None) -> list[int]:
    """One row, and the sides that are free as asked. Raises UsageError where a size is missing."""
    shape = [1 if place == 0 and size < 0 else size for place, size in enumerate(value.shape)]
    if side is not None and len(shape) == 4:
        width, height = side
        shape[2] = height if shape[2] < 0 else shape[2]
        shape[3] = width if shape[3] < 0 else shape[3]
    if any(size < 0 for size in shape):
        raise UsageError(
            f"the input `{value.name}` has free sizes: {' x '.join(map(str, value.shape))}",
            hint=("name the size of the images: --image 640x640",),
        )
    if prod(shape) > LARGEST:
        raise UsageError(f"the input `{value.name}` would have {prod(shape):,} numbers")
    return shape


def side_of(images: Sequence[str]) -> tuple[int, int] | None:
    """The size that a load's images have; None where none is named. Raises UsageError for a file."""
    if not images:
        return None
    found = size_of(images[0])
    if found is None:
        raise UsageError("tensors are made up: no file is sent", hint=("write --image WIDTHxHEIGHT",))
    return found


@lru_cache(maxsize=4)
def _rest(count: int, write: str) -> bytes:
    dice = Random(count)
    block = [write.format(dice.randrange(1, 10)) for _ in range(min(count, BLOCK))]
    whole, left = divmod(count, BLOCK)
    parts = [",".join(block)] * whole
    if left:
        parts.append(",".join(block[:left]))
    return ",".join(parts).encode()

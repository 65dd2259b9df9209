"""The values of small tensors beside scales: order of columns, zero points, scales that an engine merges.

And NaN or infinity in what is stored in plain numbers or FP8, up to a bound on what is read.
"""

import re
from array import array
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import pairwise

from model_optimizer.core import Comparison, units
from model_optimizer.system.safetensors_header import Tensor

from . import format_claims as claiming
from .format_checkpoint import SCALES, Checkpoint, split
from .format_found import checked, remark
from .format_scales import decode
from .format_tensors import STACKED, Layer

INDICES = ("g_idx", "weight_g_idx")
MERGED = ("weight_global_scale", "weight_scale_2")
LARGEST_SMALL = 64 << 20
"""Bytes of one tensor of indices or zero points beyond which it is not read."""

MERGE_TOLERANCE = 1.05
"""Weights that a merged scale makes larger by more than this are wrong (assumed)."""


def order(checkpoint: Checkpoint, layers: tuple[Layer, ...]) -> Iterator[Comparison]:
    """With act-order every input belongs to one group, and every group is full."""
    faults: list[str] = []
    count = 0
    for layer in layers:
        part = next((p for p in INDICES if p in layer.has), None)
        sides = claiming.sides(layer.claim, layer.shapes) if layer.claim else None
        if part is None or layer.claim is None or sides is None or layer.has[part].dtype != "I32":
            continue
        count += 1
        groups = sides[1] // layer.claim.group if layer.claim.group else 1
        found = _integers(checkpoint, layer, part)
        if why := _disorder(found, groups, ordered=layer.claim.ordered):
            faults.append(f"`{layer.name}.{part}` {why}")
    if count:
        yield checked(
            "order",
            faults,
            of=count,
            what="layers have every input in one group",
            reference="an engine sorts inputs by it, or, without act-order, does not look at it",
            hint="quantize again, or correct `desc_act` or `actorder`",
        )


def _disorder(found: "array[int]", groups: int, *, ordered: bool) -> str | None:
    if not found or groups < 1 or all(x == -1 for x in found):  # -1: compressed-tensors, not in use
        return None
    if not ordered:
        moved = any(one > other for one, other in pairwise(found))
        return "reorders the inputs, and the description says that they are in order" if moved else None
    low, high = min(found), max(found)
    if low < 0 or high >= groups:
        return f"names group {high if high >= groups else low}, there are {groups}"
    full = Counter(found)
    if len(found) % groups == 0 and any(full[g] != len(found) // groups for g in range(groups)):
        return f"puts {max(full.values())} inputs into one group of {len(found) // groups}"
    return None


def zeros(checkpoint: Checkpoint, layers: tuple[Layer, ...]) -> Iterator[Comparison]:
    """Zero points of symmetric GPTQ are all the middle, since engines do not read them."""
    faults: list[str] = []
    shifted = 0
    count = 0
    second = _described(checkpoint).get("checkpoint_format") == "gptq_v2"
    for layer in layers:
        claim = layer.claim
        if claim is None or claim.layout != "gptq" or not claim.symmetric or "qzeros" not in layer.has:
            continue
        count += 1
        words = set(_integers(checkpoint, layer, "qzeros"))
        points = {(word >> at) & ((1 << claim.bits) - 1) for word in words for at in range(0, 32, claim.bits)}
        if len(points) > 1:
            faults.append(f"`{layer.name}.qzeros` holds {len(points)} different zero points")
        middle = (1 << (claim.bits - 1)) - (0 if second else 1)
        shifted += len(points) == 1 and abs(points.pop() - middle) == 1
    if count:
        yield checked(
            "zero_points",
            faults,
            of=count,
            what="layers have the one zero point of symmetric numbers",
            reference="with `sym` true engines take the middle and do not read the others",
            hint="say `sym` false, if the checkpoint was made so",
        )
    if shifted:
        has, said = ("gptq", "gptq_v2") if second else ("gptq_v2", "gptq")
        says = f"{shifted:,} layers have zero points as {has} stores them, {said} is described"
        yield remark("zero_convention", says, reference="vLLM takes the middle; who reads them is one off")


def merged(checkpoint: Checkpoint, layers: tuple[Layer, ...]) -> Iterator[Comparison]:
    """NVFP4 layers that an engine stacks have one global scale: it takes the largest for all, and scales
    nothing again."""
    there = {layer.name: layer for layer in layers if layer.claim}
    faults: list[str] = []
    close = 0
    count = 0
    for group in _groups(there):
        part = next((p for p in MERGED if all(p in there[n].has for n in group)), None)
        values = [x for n in group for x in _floats(checkpoint, there[n], part)] if part else []
        if len(values) < 2 or min(values) <= 0:
            continue
        count += 1
        ratio = max(values) / min(values)
        parent, _, last = group[0].rpartition(".")
        if ratio > MERGE_TOLERANCE:
            others = ", ".join(name.rpartition(".")[2] for name in group[1:])
            faults.append(f"`{parent}`: {part} of {last} and {others} differ {ratio:.3g} times")
        close += 1 < ratio <= MERGE_TOLERANCE
    if count:
        yield checked(
            "merged_scales",
            faults,
            of=count,
            what="stacked layers share their global scale",
            reference="vLLM 0.32 compressed_tensors_w4a4_nvfp4.py and modelopt.py: the largest one for all",
            hint="quantize the parts of a stacked layer with one global scale",
        )
    if close:
        yield remark(
            "merged_scales_close", f"{close} of them differ by less than 5 %", reference="accuracy suffers"
        )


def _groups(there: Mapping[str, Layer]) -> Iterator[tuple[str, ...]]:
    for name in there:
        parent, _, last = name.rpartition(".")
        for stack in STACKED:
            together = tuple(f"{parent}.{other}" for other in stack if f"{parent}.{other}" in there)
            if last == stack[0] and len(together) > 1:
                yield together


def sizes(checkpoint: Checkpoint, layers: tuple[Layer, ...]) -> Iterator[Comparison]:
    """`weight_shape` of compressed-tensors is the shape of the weight before it was packed."""
    odd: list[str] = []
    for layer in layers:
        wanted = claiming.sides(layer.claim, layer.shapes) if layer.claim else None
        stored = layer.has.get("weight_shape")
        if wanted is None or stored is None or stored.dtype != "I64" or stored.elements != 2:
            continue
        got = tuple(array("q", b"".join(checkpoint.content(f"{layer.name}.weight_shape"))))
        if got != wanted and got != (0, 0) and not _padded(got, wanted):
            odd.append(f"`{layer.name}.weight_shape` says {list(got)}, its weight is {list(wanted)}")
    if odd:
        more = f", and {len(odd) - 1:,} more" if len(odd) > 1 else ""
        reference = "vLLM does not look at it; transformers unpacks by it"
        yield remark("weight_shape", odd[0] + more, reference=reference)


def _padded(got: tuple[int, ...], wanted: tuple[int, int]) -> bool:
    """The last word of a row may hold fewer numbers than it could."""
    return got[0] == wanted[0] and 0 <= wanted[1] - got[1] < 8


def _described(checkpoint: Checkpoint) -> Mapping[str, object]:
    found = checkpoint.keys.get("quantization_config")
    return found if isinstance(found, dict) else {}  # pyright: ignore[reportUnknownVariableType]


def _integers(checkpoint: Checkpoint, layer: Layer, part: str) -> "array[int]":
    stored = layer.has[part]
    if stored.dtype != "I32" or stored.bytes > LARGEST_SMALL:
        return array("i")
    return array("i", b"".join(checkpoint.content(f"{layer.name}.{part}")))


def _floats(checkpoint: Checkpoint, layer: Layer, part: str | None) -> "array[float] | list[float]":
    if part is None or layer.has[part].dtype != "F32" or layer.has[part].elements != 1:
        return []
    return decode(b"".join(checkpoint.content(f"{layer.name}.{part}")), "F32")


MOST_BYTES = 4 << 30
"""Of weights that are searched for NaN, the smallest tensors first: a few seconds."""

WIDTHS = {"F32": 4, "BF16": 2, "F16": 2, "F8_E4M3": 1, "F8_E5M2": 1}
TOPS = {
    "F32": re.compile(rb"[\x7f\xff]"), "BF16": re.compile(rb"[\x7f\xff]"),
    "F16": re.compile(rb"[\x7c-\x7f\xfc-\xff]"), "F8_E4M3": re.compile(rb"[\x7f\xff]"),
    "F8_E5M2": re.compile(rb"[\x7c-\x7f\xfc-\xff]"),
}  # fmt: skip
"""The highest byte of a number whose exponent is all ones; of F32 and BF16 the next byte has its last bit."""


def finite(checkpoint: Checkpoint) -> Iterator[Comparison]:
    """No weight, bias or norm holds NaN or infinity."""
    names = [n for n, s in checkpoint.tensors.items() if s.tensor.dtype in WIDTHS and _is_weight(n)]
    if not names:
        return
    faults: list[str] = []
    size = 0
    left = 0
    for name in sorted(names, key=lambda n: checkpoint.tensors[n].tensor.bytes):
        tensor = checkpoint.tensors[name].tensor
        if size + tensor.bytes > MOST_BYTES:
            left += 1
            continue
        size += tensor.bytes
        at = _first_odd(checkpoint, name, tensor)
        if at is not None:
            faults.append(f"`{name}` holds NaN or infinity at {at:,}")
    yield checked(
        "weight_values",
        faults,
        of=len(names) - left,
        what=f"weights in plain numbers or FP8 ({units.show_bytes(size)}) are finite",
        reference="one such number turns every answer into NaN",
        hint="make it again from a checkpoint without them",
    )
    if left:
        yield remark("not_searched", f"{left:,} larger weights were not searched for NaN", reference="size")


def _is_weight(name: str) -> bool:
    return split(name)[1] not in SCALES and name.rpartition(".")[2] in ("weight", "bias")


def _first_odd(checkpoint: Checkpoint, name: str, tensor: Tensor) -> int | None:
    """Where the first number lies that is not finite."""
    width = WIDTHS[tensor.dtype]
    before, rest = 0, b""
    for piece in checkpoint.content(name):
        content = rest + piece if rest else piece
        whole = len(content) - len(content) % width
        content, rest = content[:whole], content[whole:]
        if (at := _odd(content, tensor.dtype, width)) is not None:
            return before + at
        before += whole // width
    return None


def _odd(content: bytes, dtype: str, width: int) -> int | None:
    tops = content[width - 1 :: width] if width > 1 else content
    for found in TOPS[dtype].finditer(tops):
        at = found.start()
        if dtype not in ("F32", "BF16") or content[at * width + width - 2] & 0x80:
            return at
    return None

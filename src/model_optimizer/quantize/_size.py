"""Bytes of a checkpoint with fewer bits, matrix by matrix: numbers, scales, zero points and headers.

Layouts are those that llm-compressor 0.14 (compressed-tensors 0.19) and ModelOpt 0.47 write.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil, prod

from model_optimizer.core import ModelSpec, Scheme, Weight
from model_optimizer.system.making import bytes_beside_weights

from ._choices import Choices

KEPT = frozenset({"embedding", "head", "router", "norm", "pooler", "classifier", "vision", "mtp", "indexer"})
"""Roles of weights that keep their precision, as workers/_quantize_source.py decides by name."""

TABLES = "relative_attention_bias"
"""In the name of a table that has the role of the layers beside it."""

BYTES = {"fp32": 4, "bf16": 2, "fp16": 2}
BLOCK = 128

HEADER = 120
"""Bytes that a tensor takes in the header of its file: name, type, shape, place. Seen: 104 to 122."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """`scale_bytes` None: as wide as the weights were. `fixed` are bytes of each matrix whatever its shape,
    `beside` how many tensors come with the numbers."""

    scale_bytes: int | None = None
    fixed: int = 0
    beside: int = 1
    whole: bool = False


PACKED = Layout(fixed=16, beside=2)
LAYOUTS = {
    "awq_int4": PACKED,
    "gptq_int4": PACKED,
    "int4_rtn": PACKED,
    "int8_weight": PACKED,
    "fp8_static": Layout(beside=2, whole=True, fixed=2),
    "nvfp4": Layout(scale_bytes=1, fixed=8, beside=3),
    "mxfp4": Layout(scale_bytes=1),
}
PLAIN = Layout()


def artifact_bytes(model: ModelSpec, scheme: Scheme, choices: Choices) -> int:
    """Bytes of the folder: quantized matrices with what lies beside them, all else as it is stored."""
    plain = BYTES.get(model.dtype or "bf16", 2)
    inside = quantized_parameters(model)
    kept = (model.parameters - inside) * plain + bytes_beside_weights(model)
    bits = choices.bits if scheme.name == "mixed" and choices.bits else scheme.weight_bits
    if not model.weights:
        each = bits / 8 + (plain / scheme.group_size if scheme.group_size else 0)
        return round(inside * each) + kept
    layout = LAYOUTS.get(scheme.name, PLAIN)
    group = scheme.group_for(into for _out, into, _count in matrices(model))
    zeros = has_zero_points(model, scheme, choices.symmetric)
    sides = 0
    for out, into, count in matrices(model):
        if scheme.name == "fp8_block":
            scales = ceil(out / BLOCK) * ceil(into / BLOCK)
        else:
            scales = 1 if layout.whole else out * (ceil(into / group) if group else 1)
        side = scales * (layout.scale_bytes or plain) + layout.fixed
        if zeros:  # whole words of 32 bits, packed down the rows
            side += 4 * ceil(out * scheme.weight_bits / 32) * (scales // out)
        sides += count * (side + HEADER * (layout.beside + zeros))
    caches = 2 * model.layers * (plain + HEADER) if scheme.kv_bits < 16 else 0
    headers = HEADER * sum(weight.copies for weight in model.weights)
    return round(inside * bits / 8) + sides + caches + headers + kept


def has_zero_points(model: ModelSpec, scheme: Scheme, symmetric: bool | None) -> bool:
    """As workers/quantize_calibrated.py decides where nobody says it."""
    if scheme.name not in ("awq_int4", "gptq_int4"):
        return False
    return not (bool(model.experts) if symmetric is None else symmetric)


def matrices(model: ModelSpec) -> Iterator[tuple[int, int, int]]:
    """(outputs, inputs, how many) of all that loses bits; stacked experts count one by one."""
    for weight in model.weights:
        if _loses_bits(weight):
            *stack, out, into = weight.shape
            yield out, into, weight.copies * prod(stack)


def quantized_parameters(model: ModelSpec) -> int:
    """Parameters of the matrices that lose bits."""
    if not model.weights:
        return model.parameters - model.embedding_parameters - model.head_parameters
    return sum(weight.parameters for weight in model.weights if _loses_bits(weight))


def largest_matrix(model: ModelSpec) -> int:
    """Parameters of the largest matrix that loses bits; stacked experts count as one."""
    found = [w.parameters // w.copies for w in model.weights if _loses_bits(w)]
    return max(found, default=model.hidden_size * max(model.intermediate_size, model.hidden_size))


def widest_matrix(model: ModelSpec) -> int:
    """Columns of the widest matrix that loses bits."""
    found = [into for _out, into, _count in matrices(model)]
    return max(found, default=max(model.hidden_size, model.intermediate_size))


def _loses_bits(weight: Weight) -> bool:
    stacked = weight.role == "expert" and len(weight.shape) == 3
    return weight.role not in KEPT and (len(weight.shape) == 2 or stacked) and TABLES not in weight.name

"""A graph in BF16 as one in 32 bits that rounds every number as BF16 does: no processor runs the first.

A value keeps its name for what is rounded; two casts are put in before it. Weights stay in BF16, in their
file.
"""

from collections.abc import Iterator
from typing import Any

FLOAT, BF16 = 1, 16
KEEPS = (
    "Reshape", "Transpose", "Squeeze", "Unsqueeze", "Slice", "Gather", "Concat", "Expand", "Identity",
    "Split", "Flatten", "Tile", "Neg", "Relu", "MaxPool",
)  # fmt: skip
"""What these make of numbers in BF16 are numbers in BF16."""


def in_32_bits(model: Any) -> bool:
    """Rewrite a model in place; False, and nothing is done, where nothing in it is in BF16."""
    import onnx

    graph = model.graph
    brains = {t.name for t in graph.initializer if t.data_type == BF16}
    known = onnx.shape_inference.infer_shapes(model).graph if brains or _casts(graph) else graph
    values = {
        v.name
        for v in (*known.value_info, *graph.input, *graph.output)
        if v.type.tensor_type.elem_type == BF16
    }
    if not brains and not values:
        return False
    for value in (*graph.input, *graph.output):
        if value.name in values:
            value.type.tensor_type.elem_type = FLOAT
    del graph.value_info[:]
    nodes = [made for node in graph.node for made in _rounded(node, values)]
    del graph.node[:]
    graph.node.extend([*_opened(nodes, brains), *nodes])
    return True


def _casts(graph: Any) -> bool:
    return any(n.op_type == "Cast" and n.attribute[0].i == BF16 for n in graph.node)


def _opened(nodes: list[Any], weights: set[str]) -> list[Any]:
    """Casts of the weights that nodes read, which then read those."""
    import onnx

    used: dict[str, None] = {}
    for node in nodes:
        for place, name in enumerate(node.input):
            if name in weights:
                used[name] = None
                node.input[place] = f"{name}_in_32_bits"
    return [onnx.helper.make_node("Cast", [n], [f"{n}_in_32_bits"], to=FLOAT, name=f"open_{n}") for n in used]


def _rounded(node: Any, values: set[str]) -> Iterator[Any]:
    """A node and the casts behind it."""
    import onnx

    casts: list[Any] = []
    for place, value in enumerate(node.output):
        if value not in values or node.op_type in KEEPS:
            continue
        raw, between = f"{value}_unrounded", f"{value}_rounded"
        node.output[place] = raw
        if _makes_bf16(node):
            between = raw
        else:
            casts.append(onnx.helper.make_node("Cast", [raw], [between], to=BF16, name=f"round_{value}"))
        casts.append(onnx.helper.make_node("Cast", [between], [value], to=FLOAT, name=f"widen_{value}"))
    yield node
    yield from casts


def _makes_bf16(node: Any) -> bool:
    """Whether a node gives BF16 whatever it is given."""
    return any(
        (a.name == "to" and a.i == BF16) or (a.name == "value" and a.t.data_type == BF16)
        for a in node.attribute
    )

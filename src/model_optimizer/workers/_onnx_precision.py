"""Which nodes of a graph stay in 32 bits when the rest gets 16, so that few casts are needed; casts without
detours; and 16 bits rounded where a runtime would not.

Some kinds always stay high, and all that makes an angle: a position of a thousand times a frequency has an
error of half a radian in FP16. Products are always low. What lies between, sums and multiplications above
all, goes where the fewest casts are needed: the residual stream between two norms then stays in 32 bits.
"""

import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parent))
from _onnx_file import sort_nodes

ANGLES = ("Cos", "Sin")
RATHER_HIGH = (
    "Add", "Sub", "Mul", "Div", "Neg", "Abs", "Sqrt", "Where", "Clip", "Cast", "Constant", "ConstantOfShape",
)  # fmt: skip
"""Where as many casts are needed either way, these are computed in 32 bits, and the next in 16."""
RATHER_LOW = (
    "Sigmoid", "Tanh", "Erf", "Relu", "LeakyRelu", "HardSigmoid", "HardSwish", "Softplus", "Gelu", "Identity",
    "Reshape", "Transpose", "Slice", "Concat", "Split", "Unsqueeze", "Squeeze", "Expand", "Tile", "Flatten",
)  # fmt: skip
CAST, RATHER = 1000, 1
"""What a cast costs, and a node that is not where it rather is."""
SMALL = 1 << 16
FLOAT = 1
SUFFIX = "_cast_to_fp16"
HIGH, LOW = "high", "low"


def high_nodes(graph: Any, kept: Collection[str], floats: Collection[str]) -> set[int]:
    """The numbers of the nodes that stay in 32 bits; `floats` are the values that are 32-bit numbers now."""
    import networkx

    net: Any = networkx.DiGraph()
    net.add_nodes_from((HIGH, LOW))
    makers = {value: number for number, node in enumerate(graph.node) for value in node.output}
    angles = _angles(graph, makers, floats)
    for number, node in enumerate(graph.node):
        if number in angles or node.op_type in kept:
            net.add_edge(HIGH, number)  # without a capacity: never cut
        elif node.op_type in RATHER_HIGH:
            net.add_edge(HIGH, number, capacity=RATHER)
        elif node.op_type in RATHER_LOW:
            net.add_edge(number, LOW, capacity=2 * RATHER)
        else:
            net.add_edge(number, LOW)
    for value, readers in _readers(graph, floats).items():
        maker = makers.get(value, HIGH)  # what is asked of a graph, and its answers, are in 32 bits
        down, up = ("down", value), ("up", value)
        net.add_edge(maker, down, capacity=CAST)
        net.add_edge(up, maker, capacity=CAST)
        for reader in readers:
            net.add_edge(down, reader)
            net.add_edge(reader, up)
    found, _ = networkx.minimum_cut(net, HIGH, LOW)[1]
    return {number for number in found if isinstance(number, int)}


def _readers(graph: Any, floats: Collection[str]) -> Mapping[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for number, node in enumerate(graph.node):
        for value in set(_reads(node)):
            if value in floats:
                found.setdefault(value, []).append(number)
    for output in graph.output:
        if output.name in floats:
            found.setdefault(output.name, []).append(HIGH)
    return found


def _angles(graph: Any, makers: Mapping[str, int], floats: Collection[str]) -> set[int]:
    """All that leads from positions to the argument of a cosine or sine."""
    found: set[int] = set()
    wanted = [number for number, node in enumerate(graph.node) if node.op_type in ANGLES]
    while wanted:
        number = wanted.pop()
        if number not in found:
            found.add(number)
            wanted.extend(makers[v] for v in graph.node[number].input if v in floats and v in makers)
    return found


def own_constants(graph: Any, high: Collection[int]) -> None:
    """Small constants that both sides read are doubled, so that those in 32 bits are not rounded."""
    low = {v for number, node in enumerate(graph.node) if number not in high for v in _reads(node)}
    shared = {t.name: t for t in graph.initializer if t.data_type == FLOAT and t.name in low}
    for number in sorted(high):
        for place, value in enumerate(graph.node[number].input):
            tensor = shared.get(value)
            if tensor is None or _count(tensor) > SMALL:
                continue
            name = f"{value}_in_32_bits"
            if all(t.name != name for t in graph.initializer):
                graph.initializer.append(tensor)
                graph.initializer[-1].name = name
            graph.node[number].input[place] = name


def merge_casts(graph: Any, before: Collection[str]) -> None:
    """Take out what two casts after one another round for nothing, and casts that are there twice.

    Only casts that are not named in `before` are touched: those of the model itself may be meant.
    """
    made = [n for n in graph.node if n.op_type == "Cast" and n.name not in before]
    down = {n.output[0]: n.input[0] for n in made if n.attribute[0].i != FLOAT}
    answers = {v.name for v in graph.output}
    once: dict[str, str] = {}
    names: dict[str, str] = {}
    gone: list[Any] = []
    for cast in made:
        value, result = cast.input[0], cast.output[0]
        if result in down:
            if result in once:
                gone.append(cast)
            once[result] = result
            continue
        right = down.get(value) or once.get(value)
        if right is None:
            once[value] = result
        elif result in answers:
            names[right] = result
            gone.append(cast)
        else:
            if right != result:
                names[result] = right
            gone.append(cast)
    for cast in gone:
        _remove(graph, cast)
    _rename(graph, names)
    _drop_unread(graph, [n for n in made if all(n is not cast for cast in gone)])


def _remove(graph: Any, node: Any) -> None:
    at = next(at for at, other in enumerate(graph.node) if other is node)
    del graph.node[at]


def _drop_unread(graph: Any, casts: Iterable[Any]) -> None:
    """A value that is now read in 32 bits only gets its own name back."""
    read = {v for node in graph.node for v in _reads(node)} | {v.name for v in graph.output}
    names: dict[str, str] = {}
    for cast in casts:
        value, result = cast.input[0], cast.output[0]
        if result not in read:
            if value == result + SUFFIX:
                names[value] = result
                for info in [v for v in graph.value_info if v.name == result]:
                    graph.value_info.remove(info)
            _remove(graph, cast)
    _rename(graph, names)
    there = {v for node in graph.node for v in node.output}
    for info in [v for v in graph.value_info if v.name not in there]:
        graph.value_info.remove(info)


def _rename(graph: Any, names: Mapping[str, str]) -> None:
    def final(value: str) -> str:
        while value in names:
            value = names[value]
        return value

    for node in graph.node:
        for values in (node.input, node.output):
            for place, value in enumerate(values):
                if value in names:
                    values[place] = final(value)
        for attribute in node.attribute:
            if attribute.g.node:
                _rename(attribute.g, names)
    seen = {v.name for v in graph.value_info} | {v.name for v in graph.output}
    for info in graph.value_info:
        if info.name in names and final(info.name) not in seen:
            info.name = final(info.name)


def _reads(node: Any) -> Iterator[str]:
    yield from (value for value in node.input if value)
    for attribute in node.attribute:
        for inner in attribute.g.node:
            yield from _reads(inner)


def _count(tensor: Any) -> int:
    count = 1
    for size in tensor.dims:
        count *= size
    return count


def halves(model: Any) -> set[str]:
    """The values that are FP16 numbers, but for the graph's own answers."""
    import onnx

    graph = onnx.shape_inference.infer_shapes(model).graph if has_halves(model) else model.graph
    found = {v.name for v in graph.value_info if v.type.tensor_type.elem_type == onnx.TensorProto.FLOAT16}
    return found - {v.name for v in graph.output}


def has_halves(model: Any) -> bool:
    import onnx

    half = onnx.TensorProto.FLOAT16
    values = (*model.graph.value_info, *model.graph.input, *model.graph.output)
    return any(v.type.tensor_type.elem_type == half for v in values) or any(
        tensor.data_type == half for tensor in model.graph.initializer
    )


def round_halves(graph: Any, values: Collection[str]) -> None:
    """Make a runtime without FP16 kernels round these values, as an engine does.

    ONNX Runtime's kernels for processors compute in 32 bits and leave out the casts between neighbours, also
    around one node that only passes FP16 on, but not around two. For sessions that rewrite nothing.
    """
    import onnx

    for node in [node for node in graph.node if any(value in values for value in node.output)]:
        for place, value in enumerate(node.output):
            if value in values:
                raw, between = f"{value}_unrounded", f"{value}_rounded"
                node.output[place] = raw
                for one, other in ((raw, between), (between, value)):
                    graph.node.append(
                        onnx.helper.make_node("Identity", [one], [other], name=f"round_{other}")
                    )
    sort_nodes(graph)

"""Finding the first operator that is wrong between a reference and a graph, in bounded memory.

A *pair* is a value of the graph and the key of the same value in the reference. A few pairs are looked at in
one run. What is wrong at a place may have come from before it: so each suspicious place is computed once
more, alone, from the reference's values, and only what is then still wrong is its own.
"""

import itertools
import math
import sys
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

sys.path.append(str(Path(__file__).resolve().parent))
from _operators_graph import Feed, Graph
from _operators_torch import Place, Truth

PRODUCTS = ("MatMul", "Gemm", "Conv", "ConvTranspose", "MatMulInteger", "ConvInteger", "MatMulNBits")
HUGE = 1e30
LARGE = 6e4
MATCH = 1e-5
SHOWN = 5


class Pairs(NamedTuple):
    """`keys` maps a value of the graph, in its order, to the reference's key; `ask` gives their arrays."""

    keys: Mapping[str, Hashable]
    ask: Callable[[Sequence[Hashable]], Mapping[Hashable, Any]]


class Found(NamedTuple):
    """A place whose own error is too large; `total` is its error with what it inherited."""

    value: str
    own: float
    total: float
    piece: tuple[int, ...]
    inputs: Mapping[str, Any]
    wanted: Any


class Search:
    """One stage: a graph beside its reference at one input."""

    def __init__(self, graph: Graph, pairs: Pairs, feed: Feed, *, per_run: int, own_limit: float) -> None:
        self.graph, self.pairs, self.feed = graph, pairs, feed
        self.per_run, self.own_limit = per_run, own_limit
        self.order = sorted(pairs.keys, key=lambda value: graph.maker.get(value, -1))
        self.known: dict[str, float] = {}
        self.own_known: dict[str, Found] = {}
        self.runs = 0
        self.alone = 0

    def errors(self, values: Sequence[str]) -> dict[str, float]:
        """How far values are from the reference's, inherited errors among them; a few in each run."""
        missing = [value for value in values if value not in self.known]
        for start in range(0, len(missing), self.per_run):
            asked = missing[start : start + self.per_run]
            got = self.graph.values(self.feed, asked)
            wanted = self.pairs.ask([self.pairs.keys[value] for value in asked])
            self.runs += 1
            for value in asked:
                self.known[value] = apart(got[value], wanted[self.pairs.keys[value]])
        return {value: self.known[value] for value in values}

    def first(self, limit: float) -> Found | None:
        """Where the error begins: cut points are split into `per_run` parts, then followed back."""
        order = self._before_a_wrong_answer(limit)
        low, high = -1, len(order) - 1
        if high < 0:
            return None
        while high - low > 1:
            count = min(self.per_run, high - low - 1)
            probes = sorted({low + (high - low) * (n + 1) // (count + 1) for n in range(count)} - {low, high})
            found = self.errors([order[at] for at in probes])
            bad = [at for at in probes if found[order[at]] > limit]
            if bad:
                low = max((at for at in probes if at < bad[0]), default=low)
                high = bad[0]
            else:
                low = probes[-1]
        return self.back(order[high])

    def _before_a_wrong_answer(self, limit: float) -> list[str]:
        """The places that lead to the first answer that is wrong, which is the last of them."""
        answers = [v for v in self.order if v in self.graph.outputs] or self.order[-1:]
        wrong = [v for v, error in self.errors(answers).items() if error > limit]
        if not wrong:
            return []
        makes = set(self.graph.piece(wrong[0], ())[0])
        last = self.order.index(wrong[0])
        return [v for v in self.order[: last + 1] if self.graph.maker.get(v) in makes]

    def back(self, value: str) -> Found:
        """From a bad place to where its error was made."""
        seen: list[Found] = []
        while True:
            found = self.own(value)
            seen.append(found)
            if found.own > self.own_limit:
                return found
            before = [v for v in found.inputs if v in self.pairs.keys and all(v != f.value for f in seen)]
            errors = self.errors(before)
            if not before or not max(errors.values()) > 0:
                return max(seen, key=lambda f: f.own)
            # Of several that are wrong, the first in the graph's order made the others wrong, or is beside.
            bad = [v for v in before if errors[v] > self.own_limit]
            value = min(bad, key=self.order.index) if bad else max(before, key=errors.__getitem__)

    def leaving(self) -> list[str]:
        """The places that another module reads than the one they were made in, and the answers."""
        graph = self.graph
        return [
            value
            for value in self.order
            if value in graph.outputs
            or any(graph.module(r) != graph.module(graph.maker[value]) for r in graph.readers.get(value, ()))
        ]

    def shifted(self) -> list[str]:
        """The places behind a quantization that is undone with another zero point, whatever the error."""
        wrong = shifted_pairs(self.graph)
        if not wrong:
            return []
        found: dict[int, str] = {}
        for value in self.order:
            for number in self.graph.piece(value, self.pairs.keys)[0]:
                found.setdefault(number, value)
        return list(dict.fromkeys(found[number] for number in wrong if number in found))

    def sweep(self, values: Sequence[str]) -> list[Found]:
        """The own errors of many places; the arrays of all but those that are too large are dropped."""
        return [self.own(value, keep=False) for value in values]

    def own(self, value: str, *, keep: bool = True) -> Found:
        """A place computed alone from the reference's values."""
        if value in self.own_known:
            return self.own_known[value]
        nodes, takes = self.graph.piece(value, self.pairs.keys.keys())
        paired = [name for name in takes if name in self.pairs.keys]
        keys = [self.pairs.keys[name] for name in (*paired, value)]
        wanted = self.pairs.ask(keys)
        kinds = self.graph.values(self.feed, paired) if paired else {}
        inputs = {name: narrow(wanted[self.pairs.keys[name]], kinds[name].dtype) for name in paired}
        inputs |= {name: self.feed[name] for name in takes if name not in inputs}
        self.runs += bool(paired)
        self.alone += 1
        right = wanted[self.pairs.keys[value]]
        own = self._own(value, nodes, inputs, right)
        found = Found(value, own, self.known.get(value, math.nan), tuple(nodes), inputs, right)
        if keep or own > self.own_limit:
            self.own_known[value] = found
            return found
        return found._replace(inputs={}, wanted=None)

    def _own(self, value: str, nodes: Sequence[int], inputs: Mapping[str, Any], right: Any) -> float:
        import numpy

        # An input that leaves the range of its type was made wrong before: this place is not to be judged.
        if any(a.dtype.kind == "f" and numpy.isinf(a).any() for a in inputs.values()):
            return 0.0
        return apart(self.graph.alone(nodes, inputs, [value])[value], right)


def narrow(array: Any, kind: Any) -> Any:
    """The reference's numbers in the type that the graph has there."""
    import numpy

    with numpy.errstate(over="ignore"):
        return array.astype(kind)


def apart(got: Any, wanted: Any) -> float:
    """Length of the difference as a share of the length of what is wanted; infinite for NaN and other shapes.

    Numbers that stand for minus infinity in a mask only have to be as low in both.
    """
    import numpy

    a, b = numpy.asarray(got, dtype=numpy.float64), numpy.asarray(wanted, dtype=numpy.float64)
    if a.shape != b.shape:
        return math.inf
    huge = numpy.abs(b) >= HUGE
    with numpy.errstate(invalid="ignore"):
        if not (numpy.sign(a[huge]) == numpy.sign(b[huge])).all() or not (numpy.abs(a[huge]) >= LARGE).all():
            return math.inf
    a, b = a[~huge], b[~huge]
    if not numpy.isfinite(a).all():
        return math.inf
    length = float(numpy.linalg.norm(b))
    return float(numpy.linalg.norm(a - b)) / length if length else float(numpy.abs(a).max(initial=0.0))


def between_graphs(before: Graph, after: Graph, feed: Feed) -> Pairs:
    """Values that have the same name in two graphs, one made of the other."""
    keys = {value: value for value in after.maker if value in before.maker and _numbers(after, value)}

    def ask(names: Sequence[Hashable]) -> Mapping[Hashable, Any]:
        return before.values(feed, [str(name) for name in names])  # pyright: ignore[reportReturnType]

    return Pairs(keys, ask)


def _numbers(graph: Graph, value: str) -> bool:
    """Shapes and positions are no cut points: nothing is rounded there, and pieces may compute them."""
    return graph.nodes[graph.maker[value]].op_type not in (
        "Shape", "Constant", "ConstantOfShape", "Range", "QuantizeLinear", "Size", "NonZero",
    )  # fmt: skip


def with_truth(truth: Truth, graph: Graph, small: Feed, feed: Feed) -> Pairs:
    """What goes into and comes out of PyTorch's modules, and the same values in the graph.

    A module's output is the last value of that shape that leaves its scope; its input the only one of that
    shape that enters it.
    """
    members: dict[str, list[int]] = {}
    for number, modules in enumerate(_placed(graph)):
        for module in dict.fromkeys(modules):
            members.setdefault(module, []).append(number)
    borders = {name: _border(graph, numbers) for name, numbers in members.items() if name in truth.modules}
    asked = list(dict.fromkeys(v for sides in borders.values() for side in sides for v in side))
    # What a tool put in (casts, scales of quantization) has no counterpart in PyTorch.
    asked = [v for v in asked if v not in graph.maker or graph.scopes[graph.maker[v]]]
    got = {v: a for v, a in graph.values(small, asked).items() if a.dtype.kind == "f"}
    keys: dict[str, Hashable] = {}
    places = truth.all_places(small)
    for module, (enters, leaves) in borders.items():
        _pair_in(keys, Place(module, "in"), places, [v for v in enters if v in got], got)
        _pair_out(keys, module, places, [v for v in leaves if v in got], got)
    for number, name in enumerate(graph.outputs):
        keys[name] = Place("", "out", number)

    def ask(names: Sequence[Hashable]) -> Mapping[Hashable, Any]:
        inner = [name for name in names if isinstance(name, Place) and name.module]
        answers, found = truth.run(feed, inner)
        return {**found, **{Place("", "out", n): a for n, a in enumerate(answers)}}

    return Pairs(keys, ask)


def _placed(graph: Graph) -> list[list[str]]:
    """The modules around each node. One that a tool put in lies where both what it reads was made and those
    that read it lie: a cast in the middle of a module is no way out of it.
    """
    found = [list(scopes[:-1]) for scopes in graph.scopes]
    for number, node in enumerate(graph.nodes):
        if graph.scopes[number]:
            continue
        around = [graph.scopes[reader][:-1] for reader in graph.scoped_readers(number)]
        around += [found[graph.maker[v]] for v in node.input[:1] if v in graph.maker]
        found[number] = [names[0] for names in itertools.takewhile(_alike, zip(*around, strict=False))]
    return found


def _alike(names: Sequence[str]) -> bool:
    return len(set(names)) == 1


def _border(graph: Graph, numbers: Sequence[int]) -> tuple[list[str], list[str]]:
    inside, outputs = set(numbers), set(graph.outputs)
    enters = {v: None for n in numbers for v in graph.nodes[n].input if graph.maker.get(v, n) not in inside}
    leaves = [
        v
        for n in numbers
        for v in graph.nodes[n].output
        if v and (v in outputs or any(reader not in inside for reader in graph.readers.get(v, ())))
    ]
    return list(enters), leaves


def _pair_in(
    keys: dict[str, Hashable], place: Place, places: Mapping[Place, Any], values: Sequence[str],
    got: Mapping[str, Any],
) -> None:  # fmt: skip
    if place not in places:
        return
    alike = [v for v in values if got[v].shape == places[place].shape]
    if len(alike) == 1:
        keys.setdefault(alike[0], place)


def _pair_out(
    keys: dict[str, Hashable], module: str, places: Mapping[Place, Any], values: Sequence[str],
    got: Mapping[str, Any],
) -> None:  # fmt: skip
    parts = [p for p in (Place(module, "out", 0), Place(module, "out", 1)) if p in places]
    for part in parts:
        alike = [v for v in values if got[v].shape == places[part].shape and v not in keys]
        twins = sum(places[p].shape == places[part].shape for p in parts)
        if not alike:
            continue
        if twins == 1:
            keys[alike[-1]] = part
        elif len(alike) == twins or part.part:
            # Two tensors of one shape, as cosine and sine: the nearer one is meant.
            keys[min(alike, key=lambda v, p=part: apart(got[v], places[p]))] = part


def blame(truth: Truth, graph: Graph, found: Found, feed: Feed) -> int:
    """Which node of a piece is the first that computes what PyTorch computes nowhere.

    A node is cleared by a match of its own value, or of one that follows from it.
    """
    last = graph.maker[found.value]
    values = [v for n in found.piece for v in graph.nodes[n].output if v]
    try:
        got = graph.alone(found.piece, found.inputs, values)
    except Exception:  # noqa: BLE001 - some values of a piece cannot be outputs: its end is still right
        return last
    matched = truth.matched(feed, got, MATCH)
    cleared = {
        n
        for n in found.piece
        if any(v in matched for v in graph.nodes[n].output) and not _scales_by_one(graph, n)
    }
    inside = set(found.piece)
    for number in reversed(found.piece):
        following = [r for v in graph.nodes[number].output for r in graph.readers.get(v, ()) if r in inside]
        # Integers that say shapes have no counterpart, and are right where anything made with them is.
        if number != last and following and any(r in cleared for r in following):
            cleared.add(number)
    for number in found.piece:
        if number in cleared or _says_shape(graph, number, got):
            continue
        before = {graph.maker[v] for v in graph.nodes[number].input if v in graph.maker} & inside
        if all(n in cleared or _says_shape(graph, n, got) for n in before):
            return _unchanged(truth, graph, number, feed, got, inside) or number
    return last


CHANGES = ("Add", "Sub", "Mul", "Div", "And", "Or", "Where", "Min", "Max")


def _unchanged(
    truth: Truth, graph: Graph, number: int, feed: Feed, got: Mapping[str, Any], inside: Collection[int]
) -> int | None:
    """A node just before, or what it was given, that changes nothing where PyTorch changes something.

    A mask that hides nothing leaves scores as they were, so that the sum with it seems to be PyTorch's too;
    but PyTorch has these numbers less often than the graph has.
    """
    import numpy

    for value in graph.nodes[number].input:
        maker = graph.maker.get(value)
        if maker not in inside or maker is None or graph.nodes[maker].op_type not in CHANGES:
            continue
        twins = [v for v, array in got.items() if numpy.array_equal(array, got[value])]
        givers = [v for v in graph.nodes[maker].input if v not in twins and graph.maker.get(v) in inside]
        if len(twins) > 1 and givers and truth.times(feed, got[value], MATCH) < len(twins):
            return _idle(graph, graph.maker[givers[0]], got, inside)
    return None


def _idle(graph: Graph, number: int, got: Mapping[str, Any], inside: Collection[int]) -> int:
    """The first node before one, along what is the same everywhere, from where numbers say nothing."""
    while True:
        before = [
            graph.maker[v]
            for v in graph.nodes[number].input
            if graph.maker.get(v) in inside and v in got and got[v].ndim > 1 and _uniform(got[v])
        ]
        if not before:
            return number
        number = before[-1]


def _uniform(array: Any) -> bool:
    return bool(array.size) and bool((array == array.flat[0]).all())


def _scales_by_one(graph: Graph, number: int) -> bool:
    """No exporter writes this: what it passes on is matched, and the number that should be there is not."""
    import onnx

    node = graph.nodes[number]
    scales = [graph.initializers[v] for v in node.input if v in graph.initializers]
    return (
        node.op_type in ("Mul", "Div")
        and len(scales) == 1
        and all(size == 1 for size in scales[0].dims)
        and float(onnx.numpy_helper.to_array(scales[0]).item()) == 1.0
    )


def _says_shape(graph: Graph, number: int, got: Mapping[str, Any]) -> bool:
    values = [got[v] for v in graph.nodes[number].output if v in got]
    return all(value.dtype.kind in "iu" and value.ndim <= 1 for value in values)


def blame_scale(graph: Graph, found: Found, limit: float) -> int:
    """In a piece that quantizes: the input that is lost on its way to the product, else the weight.

    A piece without quantization is to be blamed at its end; one that does not undo its quantization, there.
    """
    last = graph.maker[found.value]
    pairs = [
        (graph.maker[node.input[0]], number)
        for number in found.piece
        if (node := graph.nodes[number]).op_type == "DequantizeLinear" and node.input[0] in graph.maker
    ]
    shifted = [number for number in shifted_pairs(graph) if number in found.piece]
    if shifted:
        return shifted[0]
    weights = [
        number
        for number in found.piece
        if graph.nodes[number].op_type == "DequantizeLinear"
        and graph.nodes[number].input[0] not in graph.maker
    ]
    for quantize, dequantize in pairs:
        before, after = graph.nodes[quantize].input[0], graph.nodes[dequantize].output[0]
        inner = [n for n in found.piece if n <= dequantize]
        asked = [v for v in (before, after) if v not in found.inputs]
        got = {**found.inputs, **graph.alone(inner, found.inputs, asked)}
        if apart(got[after], got[before]) > min(limit, found.own) / 2:
            return quantize if _undoes(graph, quantize, dequantize) else dequantize
    return weights[0] if weights and pairs else last


def shifted_pairs(graph: Graph) -> list[int]:
    """Dequantize nodes whose zero point is not that of the quantize node that they undo."""
    found: list[int] = []
    for number, node in enumerate(graph.nodes):
        before = graph.maker.get(node.input[0]) if node.op_type == "DequantizeLinear" else None
        if before is not None and graph.nodes[before].op_type == "QuantizeLinear":
            one, other = (_zero(graph, side) for side in (graph.nodes[before], node))
            if one is not None and other is not None and one != other:
                found.append(number)
    return found


def _zero(graph: Graph, node: Any) -> list[float] | None:
    """The zero point: 0 where none is given, None where it is computed."""
    import numpy
    import onnx

    if len(node.input) < 3 or not node.input[2]:
        return [0.0]
    tensor = graph.initializers.get(node.input[2])
    if tensor is None or tensor.data_location == onnx.TensorProto.EXTERNAL:
        return None
    values = onnx.numpy_helper.to_array(tensor).astype("float64").ravel()
    return values[:1].tolist() if numpy.all(values == values[:1]) else values.tolist()


def _undoes(graph: Graph, quantize: int, dequantize: int) -> bool:
    """Both have the same scale and zero point."""
    import numpy
    import onnx

    sides = (graph.nodes[quantize].input[1:], graph.nodes[dequantize].input[1:])
    known = graph.initializers
    if len(sides[0]) != len(sides[1]) or not all(v in known for side in sides for v in side):
        return True
    pairs = zip(*sides, strict=True)
    return all(numpy.array_equal(*(onnx.numpy_helper.to_array(known[v]) for v in pair)) for pair in pairs)

"""One ONNX graph, looked into: values of any place at given inputs, a piece run alone, a piece cut out.

Weights stay in their file; only those that a piece needs are read.
"""

import re
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parent))
from _contract import brief, fail
from _onnx_file import SCOPES, check_external, load_graph
from _onnx_precision import halves, round_halves
from _operators_bf16 import in_32_bits

Feed = Mapping[str, Any]
TYPES = {
    "tensor(int64)": "int64", "tensor(int32)": "int32", "tensor(float)": "float32", "tensor(bool)": "bool",
    "tensor(float16)": "float16", "tensor(double)": "float64",
}  # fmt: skip
FOLDER = "session.model_external_initializers_file_folder_path"


class RunFailed(Exception):
    """A graph that ONNX Runtime loads but cannot run on these inputs; `node` is the one it stopped at."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        named = re.search(r"Name:'([^']*)'", message)
        self.node = named.group(1) if named else None


class Graph:
    """A graph in its order of computation, with who makes and who reads each value."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.model = load_graph(path)
        check_external(self.model, path)
        self.emulated = in_32_bits(self.model)
        graph = self.model.graph
        self.nodes = list(graph.node)
        self.initializers = {tensor.name: tensor for tensor in graph.initializer}
        self.inputs = [v.name for v in graph.input if v.name not in self.initializers]
        self.outputs = [v.name for v in graph.output]
        self.maker = {
            value: number for number, node in enumerate(self.nodes) for value in node.output if value
        }
        self.readers: dict[str, list[int]] = {}
        for number, node in enumerate(self.nodes):
            for value in reads(node):
                self.readers.setdefault(value, []).append(number)
        self.scopes = [scopes(node) for node in self.nodes]
        self.halves = halves(self.model)

    def module(self, number: int) -> str:
        """The PyTorch module that a node came from; '' for the outermost and where nothing is known."""
        found = [name for name in self.scopes[number][:-1] if not name.startswith("_empty_nn_module")]
        return found[-1] if found else ""

    def origin(self, value: str) -> int:
        """The node that makes a value, before the casts that a tool put behind it."""
        number = self.maker[value]
        while self.nodes[number].op_type == "Cast" and not self.scopes[number]:
            before = self.maker.get(self.nodes[number].input[0])
            if before is None:
                break
            number = before
        return number

    def describe(self, number: int) -> dict[str, Any]:
        """What is said of a node in a report. A node without metadata takes the module of its neighbour."""
        node = self.nodes[number]
        return {
            "node": node.name or node.output[0],
            "operator": node.op_type,
            "value": node.output[0],
            "module": self.module(number) or self._near(number),
        }

    def _near(self, number: int) -> str:
        """Nodes that a tool put in have no metadata: the first that reads them has, or that they read."""
        if self.scopes[number]:
            return ""
        for reader in self.scoped_readers(number):
            return self.module(reader)
        for value in self.nodes[number].input:
            if value in self.maker and self.scopes[self.maker[value]]:
                return self.module(self.maker[value])
        return ""

    def scoped_readers(self, number: int) -> list[int]:
        """The nodes with metadata that read what a node makes, past those that a tool put in between."""
        found: list[int] = []
        seen, waiting = {number}, [number]
        while waiting:
            for value in self.nodes[waiting.pop(0)].output:
                for reader in self.readers.get(value, ()):
                    if self.scopes[reader]:
                        found.append(reader)
                    elif reader not in seen:
                        seen.add(reader)
                        waiting.append(reader)
        return found

    def values(self, feed: Feed, names: Sequence[str]) -> dict[str, Any]:
        """The named values at one input. Nothing is fused, so that each of them exists."""
        session = self.session(names)
        try:
            return dict(zip(names, session.run(list(names), fitted(session, feed)), strict=True))
        except Exception as error:
            raise RunFailed(str(error)) from error

    def session(self, extra: Sequence[str] = (), *, plain: bool = True) -> Any:
        """ONNX Runtime on this graph with more outputs. `plain` leaves the runtime's own rewriting out."""
        import onnx

        model = onnx.ModelProto()
        model.CopyFrom(self.model)
        there = set(self.outputs)
        model.graph.output.extend(onnx.ValueInfoProto(name=n) for n in extra if n not in there)
        if plain and self.halves:
            round_halves(model.graph, self.halves)
        return open_bytes(model.SerializeToString(), self.path.parent, self.path.name, plain=plain)

    def piece(self, target: str, given: Collection[str]) -> tuple[list[int], list[str]]:
        """The nodes that make `target` from `given` values and graph inputs, and which of those they read."""
        wanted, nodes, used = [target], set[int](), dict[str, None]()
        while wanted:
            value = wanted.pop()
            if value != target and (value in given or value in self.inputs):
                used[value] = None
            elif value in self.maker:
                if self.maker[value] not in nodes:
                    nodes.add(self.maker[value])
                    wanted.extend(reads(self.nodes[self.maker[value]]))
            elif value in self.inputs:
                used[value] = None
        return sorted(nodes), list(used)

    def alone(
        self, nodes: Sequence[int], inputs: Mapping[str, Any], outputs: Sequence[str]
    ) -> dict[str, Any]:
        """Some nodes without the others, on inputs of their own."""
        model = self.cut(nodes, inputs, outputs)
        session = open_bytes(model.SerializeToString(), self.path.parent, self.path.name)
        return dict(zip(outputs, session.run(list(outputs), fitted(session, inputs)), strict=True))

    def cut(self, nodes: Iterable[int], inputs: Mapping[str, Any], outputs: Sequence[str]) -> Any:
        """These nodes alone as a model, with the weights they read; `inputs` are what it takes."""
        import onnx

        kept = [self.nodes[number] for number in nodes]
        needed = {value for node in kept for value in reads(node)} & self.initializers.keys()
        weights = []
        for name in sorted(needed - inputs.keys()):
            tensor = onnx.TensorProto()
            tensor.CopyFrom(self.initializers[name])
            if tensor.data_location == onnx.TensorProto.EXTERNAL:
                onnx.external_data_helper.load_external_data_for_tensor(tensor, str(self.path.parent))
                tensor.data_location = onnx.TensorProto.DEFAULT
                del tensor.external_data[:]
            weights.append(tensor)
        takes = [
            onnx.helper.make_tensor_value_info(
                name, onnx.helper.np_dtype_to_tensor_dtype(array.dtype), array.shape
            )
            for name, array in inputs.items()
        ]
        gives = [onnx.ValueInfoProto(name=name) for name in outputs]
        graph = onnx.helper.make_graph(kept, "piece", takes, gives, weights)
        if len(kept) > 1:
            round_halves(graph, self.halves)
        made = onnx.helper.make_model(graph, opset_imports=self.model.opset_import)
        made.ir_version = self.model.ir_version
        return made


def reads(node: Any) -> list[str]:
    """What a node reads, the graphs inside it among them."""
    found = [value for value in node.input if value]
    for attribute in node.attribute:
        for inner in attribute.g.node:
            found.extend(reads(inner))
    return found


def scopes(node: Any) -> list[str]:
    """The modules that a node came from, outermost first, and at the end the operation's own name."""
    for prop in node.metadata_props:
        if prop.key == SCOPES:
            return re.findall(r"'([^']*)'", prop.value)
    return []


def open_bytes(content: bytes, folder: Path, name: str, *, plain: bool = True) -> Any:
    """A session on a graph in memory whose weights lie in `folder`."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.add_session_config_entry(FOLDER, str(folder))
    if plain:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    try:
        return onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # noqa: BLE001 - the library's errors share no base of their own
        fail(
            "onnx-unreadable",
            f"ONNX Runtime cannot load `{folder.name}/{name}`",
            [brief(error)],
            ["a graph in BF16, or with operators of another library, runs on other machines only"],
        )


def fitted(session: Any, feed: Feed) -> dict[str, Any]:
    """The part of a feed that the session takes, in its types."""
    given = {}
    for value in session.get_inputs():
        if value.name not in feed:
            fail(
                "unknown-input",
                f"the graph asks for `{value.name}`, which nothing here can give",
                hint=["graphs with a KV cache are compared by --layer model"],
            )
        array = feed[value.name]
        fixed = [(at, d) for at, d in enumerate(value.shape) if isinstance(d, int)]
        if len(value.shape) != array.ndim or any(array.shape[at] != d for at, d in fixed):
            fail(
                "shapes-differ",
                f"the graph takes `{value.name}` as {list(value.shape)}, the original as {list(array.shape)}",
                hint=["name the checkpoint that the graph was made from; free sizes need a name"],
            )
        given[value.name] = array.astype(TYPES.get(value.type, array.dtype))
    return given

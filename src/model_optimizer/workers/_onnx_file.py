"""Reading an ONNX file that came from outside, without its weights: every defect is one clear error."""

import heapq
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from _contract import brief, fail

SCOPES = "pkg.torch.onnx.name_scopes"
RUNTIME_DOMAINS = (
    "",
    "ai.onnx",
    "ai.onnx.ml",
    "ai.onnx.training",
    "ai.onnx.preview.training",
    "com.microsoft",
)
OLDEST_OPSET = 7
"""ONNX Runtime promises nothing for older ones, and its tools that change numbers cannot write them."""


@dataclass(frozen=True, kw_only=True)
class Graph:
    """`inputs` maps a name to its shape: numbers, and names of free dimensions."""

    inputs: Mapping[str, tuple[Any, ...]]
    outputs: tuple[str, ...]
    opset: int
    operators: frozenset[str]


def check_onnx(
    path: Path, *, opset_limit: int | None = None, opset_least: int = 0, what: str = "the engine"
) -> Graph:
    """The graph's outline. Fails when it is no ONNX, lacks its weights, or is of a newer or older opset
    than can be worked on.
    """
    model = load_graph(path)
    check_external(model, path)
    opset = max((i.version for i in model.opset_import if i.domain in ("", "ai.onnx")), default=0)
    if opset_limit is not None and opset > opset_limit:
        fail(
            "opset-too-new",
            f"the graph is of opset {opset}, {what} reads up to {opset_limit}",
            hint=[f"export it with opset {opset_limit} or lower; `mopt convert` takes one that fits"],
        )
    if opset < opset_least:
        fail(
            "opset-too-old",
            f"the graph is of opset {opset}, its numbers can be changed from opset {opset_least} on",
            hint=[
                "export it again with opset 17 or later",
                "or let the onnx package write it anew: onnx.version_converter.convert_version(model, 17)",
            ],
        )
    constants = {tensor.name for tensor in model.graph.initializer}
    inputs = {v.name: _shape(v) for v in model.graph.input if v.name not in constants}
    return Graph(
        inputs=inputs,
        outputs=tuple(v.name for v in model.graph.output),
        opset=opset,
        operators=frozenset(f"{n.domain}::{n.op_type}" if n.domain else n.op_type for n in model.graph.node),
    )


def load_graph(path: Path) -> Any:
    import google.protobuf.message
    import onnx

    if not path.is_file():
        fail("broken-artifact", f"there is no `{path.name}` in `{path.parent.name}`")
    with path.open("rb") as stream:
        begin = stream.read(4)
    if begin[:2] in (b"PK", b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05"):
        fail(
            "pickle",
            f"`{path.name}` is a pickle, which can run any code when it is opened",
            hint=["save the weights as safetensors, with a config.json beside them"],
        )
    try:
        model = onnx.load(str(path), load_external_data=False)
    except (google.protobuf.message.DecodeError, ValueError, OSError) as error:
        fail("broken-artifact", f"`{path.name}` is no ONNX file", [brief(error)])
    if not model.graph.node:
        fail("broken-artifact", f"`{path.name}` holds no graph")
    return model


def check_external(model: Any, path: Path) -> None:
    """Weights beside the graph are all there, inside the same folder, and long enough."""
    import onnx

    resolved = cache(lambda where: (path.parent / where).resolve())
    for tensor in model.graph.initializer:
        if tensor.data_location != onnx.TensorProto.EXTERNAL:
            continue
        entries = {entry.key: entry.value for entry in tensor.external_data}
        where = entries.get("location", "")
        if "\0" in where or not all(entries.get(k, "0").isdecimal() for k in ("offset", "length")):
            fail("broken-artifact", f"`{path.name}` does not say where `{tensor.name}` lies beside it")
        beside = resolved(where)
        if not where or resolved("") not in beside.parents:
            fail(
                "broken-artifact",
                f"`{path.name}` points outside its folder for `{tensor.name}`",
                [where],
                ["weights are read from the graph's own folder alone: save the model there with its data"],
            )
        end = int(entries.get("offset", 0)) + int(entries.get("length", 0))
        if not beside.is_file() or beside.stat().st_size < end:
            have = (
                f"{beside.stat().st_size} bytes are there, {end} are needed"
                if beside.is_file()
                else "it is missing"
            )
            fail(
                "external-data-missing",
                f"the weights of `{path.name}` are not whole: `{where}`",
                [have],
                [f"copy `{where}` beside `{path.name}`: the graph and its data belong together"],
            )


def scopes_of(path: Path) -> dict[str, str]:
    """Node name to the PyTorch module that it came from, where the exporter wrote it down."""
    found: dict[str, str] = {}
    for node in load_graph(path).graph.node:
        for prop in node.metadata_props:
            if prop.key == SCOPES:
                names = re.findall(r"'([^']*)'", prop.value)
                modules = [name for name in names if name]
                found[node.name] = modules[-2] if len(modules) > 1 else "".join(modules)
    return found


def refuse_operators(
    path: Path, refused: Mapping[str, Sequence[str]], other: Sequence[str] = (), *, what: str = "built"
) -> None:
    """Fail with each operator, its nodes (`refused` has them), the modules they came from and a rewrite."""
    rewrites = json.loads(Path(__file__).with_name("_onnx_rewrites.json").read_text(encoding="utf-8"))
    scopes = scopes_of(path)
    causes: list[str] = []
    hints: list[str] = []
    for operator, nodes in sorted(refused.items()):
        places = sorted({scopes[node] for node in nodes if scopes.get(node)})
        where = f" from {', '.join(places[:3])}{' ...' if len(places) > 3 else ''}" if places else ""
        causes.append(f"{operator}: {len(nodes)} nodes ({', '.join(nodes[:3])}){where}")
        if operator in rewrites:
            hints.append(f"{operator}: {rewrites[operator]}")
    fail(
        "unsupported-operator",
        f"the graph has operators that cannot be {what}: {', '.join(sorted(refused))}",
        [*causes, *other[:2]],
        hints or ["write these modules with operators of the ONNX standard"],
    )


def unknown_operators(model: Any) -> dict[str, list[str]]:
    """Operators of the standard that it does not have, with their nodes. Those of other domains are left to
    whom they are for."""
    import onnx

    opset = max((i.version for i in model.opset_import if i.domain in ("", "ai.onnx")), default=1)
    own = {function.name for function in model.functions}
    found: dict[str, list[str]] = {}
    for node in model.graph.node:
        if node.domain in ("", "ai.onnx") and node.op_type not in own:
            try:
                onnx.defs.get_schema(node.op_type, max_inclusive_version=opset)
            except onnx.defs.SchemaError:
                found.setdefault(node.op_type, []).append(node.name)
    return found


def foreign_operators(model: Any) -> dict[str, list[str]]:
    """Operators of domains that ONNX Runtime does not have without a library of theirs, with their nodes."""
    own = {(function.domain, function.name) for function in model.functions}
    found: dict[str, list[str]] = {}
    for node in model.graph.node:
        if node.domain not in RUNTIME_DOMAINS and (node.domain, node.op_type) not in own:
            found.setdefault(f"{node.domain}::{node.op_type}", []).append(node.name)
    return found


def save_graph(model: Any, path: Path) -> None:
    """Write a graph in the order in which it computes, with its weights beside it, readable by others."""
    import onnx

    sort_nodes(model.graph)
    # What lies there already is appended to: a graph that is written twice would carry both weights.
    path.with_name(f"{path.name}.data").unlink(missing_ok=True)
    onnx.save_model(
        model, str(path), save_as_external_data=True, location=f"{path.name}.data", size_threshold=1024
    )
    for file in (path, path.with_name(f"{path.name}.data")):
        if file.exists():
            file.chmod(0o644)
    onnx.checker.check_model(str(path))


def sort_nodes(graph: Any) -> None:
    """Every node after those it reads from; otherwise the order that there is."""
    makers = {value: number for number, node in enumerate(graph.node) for value in node.output}
    waits = [{makers[v] for v in _reads(node) if v in makers} for node in graph.node]
    readers: dict[int, list[int]] = {}
    for number, sources in enumerate(waits):
        for source in sources:
            readers.setdefault(source, []).append(number)
    left = [len(sources) for sources in waits]
    ready = [number for number, count in enumerate(left) if count == 0]
    heapq.heapify(ready)
    order: list[int] = []
    while ready:
        number = heapq.heappop(ready)
        order.append(number)
        for reader in readers.get(number, ()):
            left[reader] -= 1
            if left[reader] == 0:
                heapq.heappush(ready, reader)
    if len(order) == len(graph.node) and order != sorted(order):
        nodes = [graph.node[number] for number in order]
        copies = [type(node).FromString(node.SerializeToString()) for node in nodes]
        del graph.node[:]
        graph.node.extend(copies)


def _reads(node: Any) -> set[str]:
    """What a node reads, the graphs inside it among them."""
    found = set(node.input)
    for attribute in node.attribute:
        for inner in attribute.g.node:
            found |= _reads(inner)
    return found


def _shape(value: Any) -> tuple[Any, ...]:
    """Numbers where they are fixed; a free dimension without a name gets one from its place."""
    return tuple(
        d.dim_value if d.HasField("dim_value") else (d.dim_param or f"{value.name}_{place}")
        for place, d in enumerate(value.type.tensor_type.shape.dim)
    )

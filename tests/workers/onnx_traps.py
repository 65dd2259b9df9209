"""Known traps of the exporter, set on purpose; run by the interpreter of the onnx environment.

    python onnx_traps.py WORKERS OUT

Prints one JSON object: what came of each.
"""

import json
import sys
import warnings
from pathlib import Path
from typing import Any

sys.path.append(sys.argv[1])
import numpy
import onnx
import torch
from _contract import Failure
from _onnx_export import finish_graph, require_unique
from _onnx_feeds import apart, open_session
from _onnx_file import save_graph
from onnx_cast import KEPT_HIGH, cast

warnings.filterwarnings("ignore")
out = Path(sys.argv[2])


class Table(torch.nn.Module):
    """Its lookup makes a value called `embedding`, as its output is called."""

    def __init__(self) -> None:
        super().__init__()
        self.table = torch.nn.Embedding(50, 600)
        self.linear = torch.nn.Linear(600, 8)

    def forward(self, ids: Any) -> Any:
        return self.linear(self.table(ids)).mean(1)


class Masked(torch.nn.Module):
    """Adds a mask of the largest negative number of 32 bits, which 16 bits do not have."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(8, 8)

    def forward(self, x: Any, mask: Any) -> Any:
        hidden = torch.where(mask.unsqueeze(1) > 0, 0.0, torch.finfo(torch.float32).min)
        scores = (self.linear(x) @ x.transpose(1, 2) + hidden).softmax(-1)
        return scores @ x


class Turned(torch.nn.Module):
    """Products between two norms and a rotation by positions, with a residual stream."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.out = torch.nn.Linear(8, 8, bias=False), torch.nn.Linear(8, 8, bias=False)
        self.norm, self.last = torch.nn.RMSNorm(8), torch.nn.RMSNorm(8)

    def forward(self, x: Any, positions: Any) -> Any:
        angles = positions.float().unsqueeze(-1) * torch.tensor([1.0, 0.7, 0.3, 0.1])
        turned = self.linear(self.norm(x)) * torch.cat([angles.cos(), angles.sin()], -1)
        return self.last(x + self.out(turned))


def export(module: Any, example: tuple[Any, ...], names: list[str], output: str, path: Path) -> None:
    free = {0: torch.export.Dim("batch"), 1: torch.export.Dim("sequence")}
    with torch.no_grad():
        program = torch.onnx.export(
            module.eval(),
            example,
            dynamo=True,
            opset_version=20,
            dynamic_shapes=tuple(free for _ in example),
            input_names=names,
            output_names=[output],
            verbose=False,
        )
    finish_graph(program, path)
    require_unique(path, dict.fromkeys(names, ("batch", "sequence")))


def name_twice() -> dict[str, Any]:
    module, path = Table(), out / "twice.onnx"
    ids = torch.randint(0, 50, (2, 5))
    export(module, (ids,), ["ids"], "embedding", path)
    other = torch.randint(0, 50, (3, 9))
    (got,) = open_session(path).run(None, {"ids": other.numpy()})
    found = apart(module(other).detach().numpy(), got, "embedding")
    model = onnx.load(str(path), load_external_data=False)
    return {
        "outputs": [v.name for v in model.graph.output],
        "distance": found.largest,
        "external": (out / "twice.onnx.data").is_file(),
    }


def mask_in_16_bits() -> dict[str, Any]:
    module, path = Masked(), out / "mask.onnx"
    x, mask = torch.randn(2, 4, 8), torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0]])
    export(module, (x, mask), ["x", "mask"], "mixed", path)
    onnx.save(cast(onnx.load(str(path)), "fp16", KEPT_HIGH), str(out / "half.onnx"))
    feed = {"x": x.numpy(), "mask": mask.numpy()}
    (right,), (got,) = open_session(path).run(None, feed), open_session(out / "half.onnx").run(None, feed)
    return {"finite": bool(numpy.isfinite(got).all()), "distance": apart(right, got, "mixed").largest}


def angles_and_squares_in_16_bits() -> dict[str, Any]:
    """Squares of 300 leave FP16, and so does what is behind the point of a thousand radians."""
    torch.manual_seed(0)
    module, path = Turned(), out / "turned.onnx"
    x, positions = 300 + torch.randn(2, 4, 8), torch.arange(1996, 2000).repeat(2, 1)
    export(module, (x, positions), ["x", "positions"], "turned", path)
    half = cast(onnx.load(str(path)), "fp16", KEPT_HIGH)
    save_graph(half, out / "turned-half.onnx")
    feed = {"x": x.numpy(), "positions": positions.numpy()}
    (right,) = open_session(path).run(None, feed)
    (got,) = open_session(out / "turned-half.onnx", plain=True).run(None, feed)
    kinds = {n.output[0]: n.attribute[0].i for n in half.graph.node if n.op_type == "Cast"}
    twice = [n.name for n in half.graph.node if n.op_type == "Cast" and n.input[0] in kinds]
    return {
        "distance": apart(right, got, "turned").largest, "twice": twice,
        "casts": sorted(kinds.values()), "own": sum(t.data_type == 10 for t in half.graph.initializer),
    }  # fmt: skip


def rounding_is_seen() -> dict[str, Any]:
    """The runtime's processor kernels leave casts between two FP16 nodes out; `plain` keeps them."""
    path, half, value = out / "sums.onnx", onnx.TensorProto.FLOAT16, onnx.helper.make_tensor_value_info
    one, tiny = (onnx.numpy_helper.from_array(numpy.array(n, "float16"), str(n)) for n in (1.0, 2.0**-12))
    nodes = [
        onnx.helper.make_node(*row)
        for row in (("Add", ["x", str(2.0**-12)], ["sum"]), ("Sub", ["sum", "1.0"], ["rest"]))
    ]
    graph = onnx.helper.make_graph(
        nodes, "sums", [value("x", half, [1])], [value("rest", half, [1])], [one, tiny],
        value_info=[value("sum", half, [1])],
    )  # fmt: skip
    opset = [onnx.helper.make_opsetid("", 20)]
    onnx.save(onnx.helper.make_model(graph, opset_imports=opset, ir_version=10), str(path))
    feed = {"x": numpy.ones(1, "float16")}
    return {"plain": float(open_session(path, plain=True).run(None, feed)[0][0])}


def fixed_dimension() -> dict[str, Any]:
    """A dimension that the exporter fixed to the example's size is found, not shipped."""
    path = out / "fixed.onnx"
    module = torch.nn.Linear(8, 8)
    program = torch.onnx.export(module, (torch.randn(2, 8),), dynamo=True, opset_version=20, verbose=False)
    try:
        finish_graph(program, path)
        require_unique(path, {v.name: ("batch", 8) for v in program.model.graph.inputs})
    except Failure as failure:
        return {"error": failure.reference, "message": failure.message}
    return {
        "dims": [d.dim_param for v in onnx.load(str(path)).graph.input for d in v.type.tensor_type.shape.dim]
    }


found = {
    f.__name__: f()
    for f in (name_twice, mask_in_16_bits, angles_and_squares_in_16_bits, rounding_is_seen, fixed_dimension)
}
sys.stdout.write(json.dumps(found) + "\n")

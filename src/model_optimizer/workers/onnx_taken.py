"""Take an ONNX file that came from elsewhere as a folder of ours: checked, with names for its free sizes.

Request: {source (an .onnx file), out, scheme (what its weights are in)}. What cannot be read is refused with
the reason: no ONNX, weights that are not whole, a newer opset, operators that the standard does not have. The
graph computes what it did. `out` gets model.onnx, model.onnx.data, mopt.json and a tokenizer that lies beside
the file. Result: {versions, notes}.
"""

import importlib.metadata
import json
import sys
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parent))
from _checkpoint import TOKENIZER_FILES, copy_files
from _contract import blame, fail, main, progress
from _onnx_file import check_onnx, refuse_operators, save_graph, unknown_operators

TYPES = {
    1: "tensor(float)", 2: "tensor(uint8)", 3: "tensor(int8)", 4: "tensor(uint16)", 5: "tensor(int16)",
    6: "tensor(int32)", 7: "tensor(int64)", 8: "tensor(string)", 9: "tensor(bool)", 10: "tensor(float16)",
    11: "tensor(double)", 12: "tensor(uint32)", 13: "tensor(uint64)", 16: "tensor(bfloat16)",
}  # fmt: skip

FLOATS = (1, 10, 11, 16)


def job(request: dict[str, Any]) -> dict[str, Any]:
    import onnx

    path, out = Path(request["source"]), Path(request["out"])
    progress("reading the graph", 0.0)
    graph = check_onnx(path, opset_limit=onnx.defs.onnx_opset_version(), what="this version of ONNX")
    outline = onnx.load(str(path), load_external_data=False)
    if unknown := unknown_operators(outline):
        refuse_operators(path, unknown)
    try:
        model = onnx.load(str(path))
        refuse_nan(model, path)
        name_sizes(model)
        progress("writing the graph", 0.5)
        save_graph(model, out / "model.onnx")
    except (onnx.checker.ValidationError, ValueError, TypeError) as error:
        blame(error, "broken-artifact", f"`{path.name}` is no valid graph")
    copy_files(path.parent, out, ("config.json", "preprocessor_config.json", *TOKENIZER_FILES))
    constants = {tensor.name for tensor in model.graph.initializer}
    facts = {
        "schema": "onnx_folder/1",
        "task": "vision",
        "scheme": request["scheme"],
        "inputs": [described(v) for v in model.graph.input if v.name not in constants],
        "outputs": [described(v) for v in model.graph.output],
    }
    (out / "mopt.json").write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")
    return {
        "versions": {"onnx": importlib.metadata.version("onnx")},
        "notes": [f"taken from `{path.name}`: opset {graph.opset}, weights in {request['scheme']}"],
    }


def refuse_nan(model: Any, path: Path) -> None:
    """Weights that are no numbers: each answer would be none, before and after, and nothing be noticed."""
    import numpy
    import onnx

    for tensor in model.graph.initializer:
        if tensor.data_type in FLOATS:
            array = onnx.numpy_helper.to_array(tensor)
            if count := int(numpy.isnan(array).sum()):
                fail(
                    "broken-artifact",
                    f"`{path.name}` has weights that are no numbers",
                    [f"{count:,} of {array.size:,} numbers of `{tensor.name}` are NaN"],
                    ["take a checkpoint from before the training went wrong, and export it again"],
                )


def name_sizes(model: Any) -> None:
    """Free dimensions of inputs get the names that profiles are given by."""
    for value in model.graph.input:
        for place, size in enumerate(value.type.tensor_type.shape.dim):
            if size.dim_value < 0 or not (size.HasField("dim_value") or size.dim_param):
                size.dim_param = f"{value.name}_{place}"


def described(value: Any) -> dict[str, Any]:
    kind = value.type.tensor_type
    shape = [d.dim_value if d.HasField("dim_value") else d.dim_param or None for d in kind.shape.dim]
    return {"name": value.name, "type": TYPES.get(kind.elem_type, "tensor(other)"), "shape": shape}


if __name__ == "__main__":
    main(job)

"""Put 16-bit precision into a graph: FP16 or BF16, with norms, softmax, angles and sums kept in 32 bits.

Request: {source, out, scheme: fp16|bf16, keep_high: [operators], least_cosine}. Inputs and outputs keep their
types. ONNX Runtime's own converter places the casts, round nodes that are chosen so that few are needed; what
it casts for nothing is taken out. For BF16 the places are the same and the numbers are BF16, rounded from the
original 32 bits. FP16 is compared with the graph before; ONNX Runtime's CPU kernels cannot run BF16, so that
graph is checked by its types alone, and says so. Result: {versions, notes, distance}.
"""

import importlib.metadata
import json
import sys
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parent))
from _checkpoint import TOKENIZER_FILES, copy_files
from _contract import blame, fail, main, progress
from _onnx_feeds import distance, read_facts, samples
from _onnx_file import OLDEST_OPSET, check_onnx, save_graph
from _onnx_precision import high_nodes, merge_casts, own_constants

KEPT_HIGH = (
    "LayerNormalization",
    "RMSNormalization",
    "InstanceNormalization",
    "GroupNormalization",
    "Softmax",
    "LogSoftmax",
    "ReduceMean",
    "ReduceSum",
    "ReduceL2",
    "ReduceSumSquare",
    "Pow",
    "Sqrt",
    "Reciprocal",
    "Exp",
    "CumSum",
    "Range",
    "TopK",
    "NonMaxSuppression",
    "Clip",
    "Min",
    "Max",
)
"""What adds many numbers up or leaves the range of FP16. The rest, above all products, is 16 bits."""
LARGEST = 2 * 10**9
"""Bytes of weights that a protobuf message still takes; beyond, shapes cannot be inferred."""


def job(request: dict[str, Any]) -> dict[str, Any]:
    import onnx

    source, out, scheme = Path(request["source"]), Path(request["out"]), request["scheme"]
    facts = read_facts(source)
    require_float(facts, scheme)
    progress("reading the graph", 0.0)
    check_onnx(source / "model.onnx", opset_least=OLDEST_OPSET)
    model = onnx.load(str(source / "model.onnx"))
    kept = tuple(request.get("keep_high") or KEPT_HIGH)
    progress(f"casting to {scheme}", 0.2)
    model = cast(model, scheme, kept)
    save_graph(model, out / "model.onnx")
    del model
    copy_files(source, out, ("config.json", "preprocessor_config.json", *TOKENIZER_FILES))
    (out / "mopt.json").write_text(json.dumps({**facts, "scheme": scheme}, indent=2) + "\n", encoding="utf-8")
    progress("comparing with the graph before", 0.7)
    notes = [f"products in {scheme}; norms, softmax, angles and the sums between them stay in 32 bits"]
    apart = None
    if scheme == "bf16":
        notes.append("ONNX Runtime runs no BF16 on a processor: the graph was checked, not run")
    else:
        apart = distance(
            source / "model.onnx",
            out / "model.onnx",
            samples(source, facts, request.get("texts") or ()),
            plain=True,
        )
        least = float(request.get("least_cosine") or 0.99)
        if not apart.cosine >= least:
            fail(
                "precision-lost",
                f"in {scheme} the graph no longer computes what it did",
                [f"`{apart.output}`: cosine {apart.cosine:.4f}, at least {least:g} is asked"],
                ["the model may leave the range of FP16: try --scheme bf16"],
            )
        notes.append(
            f"beside 32 bits: cosine at least {apart.cosine:.6f}, largest difference {apart.largest:.1e}"
        )
    return {
        "versions": {name: importlib.metadata.version(name) for name in ("onnxruntime", "onnx")},
        "notes": notes,
        "distance": None if apart is None else {"largest": apart.largest, "cosine": apart.cosine},
    }


def require_float(facts: dict[str, Any], scheme: str) -> None:
    if facts.get("scheme") != "fp32":
        fail(
            "already-converted",
            f"the graph is in `{facts.get('scheme')}`, not in fp32",
            hint=[f"start {scheme} from the graph that was exported in 32 bits"],
        )


def cast(model: Any, scheme: str, kept: tuple[str, ...]) -> Any:
    """The graph in 16 bits; the operators `kept`, and what needs no cast beside them, stay in 32."""
    from onnxruntime.transformers import float16

    exact = originals(model) if scheme == "bf16" else {}
    large = weights_bytes(model) > LARGEST
    for number, node in enumerate(model.graph.node):
        node.name = node.name or f"node_{number}"
    before = {node.name for node in model.graph.node}
    kinds = {*float16.DEFAULT_OP_BLOCK_LIST, *kept}
    try:
        high = high_nodes(model.graph, kinds, floats(model, large=large))
        own_constants(model.graph, high)
        found = float16.convert_float_to_float16(
            model,
            keep_io_types=True,
            op_block_list=[],
            node_block_list=[model.graph.node[number].name for number in high],
            disable_shape_infer=large,
        )
        merge_casts(found.graph, before)
    except Exception as error:  # noqa: BLE001 - the converter raises whatever a graph makes it meet
        blame(error, "cast-failed", f"the graph cannot be cast to {scheme}")
    if scheme == "bf16":
        to_bf16(found, exact)
    return found


def weights_bytes(model: Any) -> int:
    """Protobuf itself cannot say it of what is beyond its limit."""
    return sum(len(tensor.raw_data) for tensor in model.graph.initializer)


def floats(model: Any, *, large: bool) -> set[str]:
    """The values that are 32-bit numbers. A large graph is taken at its word."""
    import onnx

    graph = model.graph if large else onnx.shape_inference.infer_shapes(model).graph
    values = (*graph.value_info, *graph.input, *graph.output)
    return {v.name for v in values if v.type.tensor_type.elem_type == onnx.TensorProto.FLOAT}


def originals(model: Any) -> dict[str, bytes]:
    """The 32-bit numbers of every constant, since rounding twice would not be rounding."""
    import onnx

    return {
        tensor.name: onnx.numpy_helper.to_array(tensor).astype("<f4").tobytes()
        for tensor in model.graph.initializer
        if tensor.data_type == onnx.TensorProto.FLOAT
    }


def to_bf16(model: Any, exact: dict[str, bytes]) -> None:
    """Every FP16 becomes BF16: types, casts, constants."""
    import numpy
    import onnx

    half, brain = onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16

    def rewrite(tensor: Any, original: bytes | None) -> None:
        numbers = (
            numpy.frombuffer(original, dtype="<f4")
            if original is not None
            else onnx.numpy_helper.to_array(tensor).astype("<f4").ravel()
        )
        bits = numbers.astype("<f4").view("<u4")
        # To the nearest, ties to even.
        rounded = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype("<u2")
        dims, name = list(tensor.dims), tensor.name
        tensor.Clear()
        tensor.name, tensor.data_type, tensor.raw_data = name, brain, rounded.tobytes()
        tensor.dims.extend(dims)

    for tensor in model.graph.initializer:
        if tensor.data_type == half:
            rewrite(tensor, exact.get(tensor.name))
    for node in model.graph.node:
        for attribute in node.attribute:
            if attribute.name in ("to", "dtype", "output_dtype") and attribute.i == half:
                attribute.i = brain
            if attribute.HasField("t") and attribute.t.data_type == half:
                rewrite(attribute.t, None)
    for value in (*model.graph.value_info, *model.graph.output, *model.graph.input):
        if value.type.tensor_type.elem_type == half:
            value.type.tensor_type.elem_type = brain


if __name__ == "__main__":
    main(job)

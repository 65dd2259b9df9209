"""Write quantize and dequantize nodes into a graph, for engines that take the precision from the graph.

Request: {source, out, scheme: int8|fp8|int4_rtn, texts, images, calibration_count, block_size, least_cosine,
rest}.

int8, fp8 products and convolutions with constant weights: weights with one scale an output channel,
activations with one fixed scale a tensor, symmetric, from calibration data int4_rtn weights in blocks,
rounded to nearest; activations stay as they are

Masks, sums of two activations and products of two activations are left alone: one scale over a mask's -3e38
would leave nothing else. What is not quantized becomes FP16 where `rest` says so. The result is compared with
the graph before. Result: {versions, notes, quantized, distance}.
"""

import importlib.metadata
import json
import logging
import sys
import tempfile
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parent))
from _checkpoint import TOKENIZER_FILES, copy_files
from _contract import blame, fail, main, progress
from _onnx_feeds import Distance, Feed, calibration, distance, fed, open_session, read_facts, samples
from _onnx_file import OLDEST_OPSET, check_onnx, save_graph
from onnx_cast import KEPT_HIGH, cast, require_float

OPERATORS = ("MatMul", "Gemm", "Conv")
QUANTIZED_BY = {"int4_rtn": ("MatMul",)}
"""Operators that a scheme is for, where they are fewer than all."""
NEEDS_OPSET = {"int4_rtn": 21, "fp8": 19, "int8": 19}
"""From which on the standard has these numbers, with scales in 16 bits."""
LEFT_OUT = (0.0, 0.15, 0.3, 0.5)
"""Shares of inputs that keep their precision, tried one after the other until the answers are right."""


def job(request: dict[str, Any]) -> dict[str, Any]:
    warnings.filterwarnings("ignore")
    logging.getLogger().setLevel(logging.ERROR)
    source, out, scheme = Path(request["source"]), Path(request["out"]), request["scheme"]
    facts = read_facts(source)
    require_float(facts, scheme)
    progress("reading the graph", 0.0)
    check_onnx(source / "model.onnx", opset_least=OLDEST_OPSET)
    notes: list[str] = []
    feeds, origin = ([], "") if scheme == "int4_rtn" else calibration(source, facts, request)
    if origin:
        notes.append(f"activation ranges from {origin}")
    rest, least = request.get("rest") or "fp32", float(request.get("least_cosine") or 0.9)
    apart, count, left = Distance(largest=0.0, cosine=0.0, output=""), 0, 0
    checked = samples(source, facts, request.get("texts") or ())
    with tempfile.TemporaryDirectory(dir=out, prefix=".opset-") as place:
        path = newer(source / "model.onnx", NEEDS_OPSET[scheme], Path(place))
        for share in (0.0,) if scheme == "int4_rtn" else LEFT_OUT:
            model, count, left = quantized(path, request, feeds, out, share)
            if rest == "fp16":
                progress("casting the rest to fp16", 0.7)
                model = cast(model, "fp16", KEPT_HIGH)
            save_graph(model, out / "model.onnx")
            del model
            progress("comparing with the graph before", 0.8)
            # The runtime's own rewriting turns quantize and dequantize into kernels of its own; FP8 has none.
            apart = distance(source / "model.onnx", out / "model.onnx", checked, plain=True)
            if apart.cosine >= least:
                break
            progress(f"cosine {apart.cosine:.3f} is below {least:g}: leaving more products out", None)
    if not apart.cosine >= least:
        fail(
            "precision-lost",
            f"in {scheme} the graph no longer computes what it did",
            [f"`{apart.output}`: cosine {apart.cosine:.4f}, at least {least:g} is asked"],
            ["calibrate with texts or images like those that will be asked", "try --scheme fp16"],
        )
    if left:
        notes.append(f"{left} products whose inputs have a few large channels stay in {rest}")
    copy_files(source, out, ("config.json", "preprocessor_config.json", *TOKENIZER_FILES))
    (out / "mopt.json").write_text(json.dumps({**facts, "scheme": scheme}, indent=2) + "\n", encoding="utf-8")
    return {
        "versions": {name: importlib.metadata.version(name) for name in ("onnxruntime", "onnx")},
        "quantized": count,
        "distance": {"largest": apart.largest, "cosine": apart.cosine},
        "notes": [
            f"{count} products in {scheme}, the rest in {rest}",
            *notes,
            f"beside 32 bits: cosine at least {apart.cosine:.5f}, largest difference {apart.largest:.1e}",
        ],
    }


def newer(path: Path, least: int, folder: Path) -> Path:
    """The graph in an opset that has what will be written into it; itself where it is new enough."""
    import onnx

    outline = onnx.load(str(path), load_external_data=False)
    opset = max((e.version for e in outline.opset_import if e.domain in ("", "ai.onnx")), default=0)
    if opset >= least:
        return path
    progress(f"writing the graph in opset {least}", 0.05)
    try:
        save_graph(onnx.version_converter.convert_version(onnx.load(str(path)), least), folder / path.name)
    except Exception as error:  # noqa: BLE001 - the converter raises whatever a graph makes it meet
        blame(
            error,
            "opset-too-old",
            f"the graph is of opset {opset}, and cannot be written in opset {least}, which this takes",
            ["export it again with that opset or a later one", "--scheme fp16 takes older ones"],
        )
    return folder / path.name


def quantized(
    path: Path, request: Mapping[str, Any], feeds: Sequence[Feed], out: Path, share: float
) -> tuple[Any, int, int]:
    """The graph, how many products were quantized, and how many were left out on purpose."""
    scheme, left = request["scheme"], 0
    if scheme == "int4_rtn":
        model, count = blocks(path, int(request.get("block_size") or 32))
    else:
        model, count, left = scales(path, scheme, feeds, out, share)
    if not count:
        fail(
            "nothing-quantized",
            f"no product of the graph can be quantized to {scheme}",
            [f"looked for with constant weights: {', '.join(QUANTIZED_BY.get(scheme, OPERATORS))}"],
            ["take --scheme fp16" if scheme not in QUANTIZED_BY else "take --scheme int8 or fp16"],
        )
    return model, count, left


def scales(path: Path, scheme: str, feeds: Sequence[Feed], out: Path, share: float) -> tuple[Any, int, int]:
    """Q/DQ by ONNX Runtime's static quantizer: symmetric, per channel, constant weights only."""
    import onnx
    from onnxruntime.quantization import CalibrationMethod, QuantFormat, QuantType, quantize_static

    progress("calibrating", 0.2)
    model = onnx.load(str(path))
    names = [node.name for node in model.graph.node if quantizable(node, model)]
    if not names:
        return model, 0, 0
    with tempfile.TemporaryDirectory(dir=out, prefix=".scratch-") as scratch:
        begin, made = copy_into(path, Path(scratch) / "source"), Path(scratch) / "model.onnx"
        kept, changed = smooth(model, names, feeds, path, share)
        exact = weights_of(model, kept) if scheme == "fp8" else {}
        if changed:
            save_graph(model, begin)
        del model
        try:
            quantize_static(
                str(begin),
                str(made),
                Reader(path, feeds),
                quant_format=QuantFormat.QDQ,
                op_types_to_quantize=list(OPERATORS),
                nodes_to_quantize=kept,
                per_channel=True,
                activation_type=QuantType.QInt8,
                weight_type=QuantType.QInt8,
                calibrate_method=CalibrationMethod.MinMax,
                use_external_data_format=True,
                extra_options={
                    "ActivationSymmetric": True,
                    "WeightSymmetric": True,
                    "MatMulConstBOnly": True,
                    "QuantizeBias": False,
                    "OpTypesToExcludeOutputQuantization": list(OPERATORS),
                },
            )
        except Exception as error:  # noqa: BLE001 - the quantizer raises whatever a graph makes it meet
            blame(error, "quantization-failed", f"ONNX Runtime cannot quantize this graph to {scheme}")
        found = onnx.load(str(made))
    if scheme == "fp8":
        to_fp8(found, exact)
    return found, count_quantized(found), len(names) - len(kept)


def weights_of(model: Any, names: Sequence[str]) -> dict[str, Any]:
    """The weights of some products in 32 bits, by name."""
    import onnx

    wanted = {node.input[1] for node in model.graph.node if node.name in set(names)}
    return {t.name: onnx.numpy_helper.to_array(t) for t in model.graph.initializer if t.name in wanted}


def to_fp8(model: Any, exact: Mapping[str, Any]) -> None:
    """The same places with FP8 (E4M3): its largest number is 448 where that of int8 is 127.

    The quantizer has FP8 too, but takes the scale from the spread, and cuts off what is 4.5 times as large.
    """
    import ml_dtypes
    import numpy
    import onnx

    pairs = ("QuantizeLinear", "DequantizeLinear")
    nodes = [node for node in model.graph.node if node.op_type in pairs and len(node.input) == 3]
    scales, zeros = {n.input[1] for n in nodes}, {n.input[2] for n in nodes}
    ratio, kind = 127 / 448, ml_dtypes.float8_e4m3fn
    arrays = {t.name: t for t in model.graph.initializer}
    for name in scales:
        array = onnx.numpy_helper.to_array(arrays[name])
        arrays[name].CopyFrom(onnx.numpy_helper.from_array((array * ratio).astype(array.dtype), name))
    for name in zeros:
        shape = onnx.numpy_helper.to_array(arrays[name]).shape
        arrays[name].CopyFrom(onnx.numpy_helper.from_array(numpy.zeros(shape, dtype=kind), name))
    for node in nodes:
        weight = arrays.get(node.input[0])
        if node.op_type == "DequantizeLinear" and weight is not None:
            original = exact[weight.name.removesuffix("_quantized")]
            scale = onnx.numpy_helper.to_array(arrays[node.input[1]]).astype("float32")
            axis = next((a.i for a in node.attribute if a.name == "axis"), 1)
            wide = scale.reshape(
                [-1 if place == axis % original.ndim else 1 for place in range(original.ndim)]
            )
            rounded = numpy.clip(original / wide, -448, 448).astype(kind)
            weight.CopyFrom(onnx.numpy_helper.from_array(rounded, weight.name))
    for value in model.graph.value_info:
        if value.type.tensor_type.elem_type == onnx.TensorProto.INT8:
            value.type.tensor_type.elem_type = onnx.TensorProto.FLOAT8E4M3FN


def copy_into(path: Path, folder: Path) -> Path:
    """The quantizer leaves scratch files beside its input, so it gets a copy to work on."""
    folder.mkdir()
    copy_files(path.parent, folder, (path.name, f"{path.name}.data"))
    return folder / path.name


def quantizable(node: Any, model: Any) -> bool:
    """A product or convolution by constant weights of 32 bits."""
    constants = {t.name for t in model.graph.initializer if len(t.dims) > 1}
    return node.op_type in OPERATORS and len(node.input) > 1 and node.input[1] in constants


def count_quantized(model: Any) -> int:
    made = {value: node.op_type for node in model.graph.node for value in node.output}
    return sum(
        node.op_type in OPERATORS and made.get(node.input[1]) == "DequantizeLinear"
        for node in model.graph.node
    )


def blocks(path: Path, block_size: int) -> tuple[Any, int]:
    """Weights of products in blocks of 4-bit integers, symmetric, expanded by DequantizeLinear."""
    import onnx
    from onnxruntime.quantization import QuantFormat
    from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer

    model = onnx.load(str(path))
    progress("rounding weights", 0.3)
    quantizer = MatMulNBitsQuantizer(
        model, bits=4, block_size=block_size, is_symmetric=True, quant_format=QuantFormat.QDQ
    )
    try:
        quantizer.process()
    except Exception as error:  # noqa: BLE001 - the quantizer raises whatever a graph makes it meet
        blame(error, "quantization-failed", "ONNX Runtime cannot quantize this graph to 4 bits")
    return quantizer.model.model, count_quantized(quantizer.model.model)


def smooth(
    model: Any, names: Sequence[str], feeds: Sequence[Feed], path: Path, share: float
) -> tuple[list[str], int]:
    """Move the spread of activations into weights, channel by channel (SmoothQuant), before one scale is
    taken.

    A few channels of a transformer's activations are twenty times as large as the others; with one scale for
    all, the others would keep two or three bits. Each input of quantized products is divided by a number a
    channel, and the rows of the weights are multiplied by it. The `share` of inputs that would still lose
    most is left out. Returns the products that are to be quantized, and how many inputs were changed.
    """
    import numpy
    import onnx

    constants = {tensor.name: tensor for tensor in model.graph.initializer}
    groups: dict[str, list[Any]] = {}
    for node in model.graph.node:
        if node.name in set(names) and node.op_type == "MatMul" and len(constants[node.input[1]].dims) == 2:
            groups.setdefault(node.input[0], []).append(node)
    peaks, squares = channel_statistics(path, list(groups), feeds)
    spreads: dict[str, Any] = {}
    bits: dict[str, float] = {}
    for value, nodes in groups.items():
        rows = numpy.maximum.reduce(
            [numpy.abs(onnx.numpy_helper.to_array(constants[node.input[1]])).max(axis=1) for node in nodes]
        )
        spread = numpy.sqrt(numpy.maximum(peaks[value], 1e-5) / numpy.maximum(rows, 1e-5))
        spreads[value] = (spread / numpy.exp(numpy.log(spread).mean())).astype("float32")
        bits[value] = float(
            (squares[value] / spreads[value] ** 2).mean() / (peaks[value] / spreads[value]).max() ** 2
        )
    worst = set(sorted(groups, key=lambda value: bits[value])[: round(share * len(groups))])
    out_names = {node.name for value in worst for node in groups[value]}
    for value, nodes in groups.items():
        if value not in worst:
            divide(model, value, nodes, spreads[value], constants)
    used = {name for node in model.graph.node for name in node.input}
    for tensor in [t for t in model.graph.initializer if t.name not in used]:
        model.graph.initializer.remove(tensor)
    return [name for name in names if name not in out_names], len(groups) - len(worst)


def divide(model: Any, value: str, nodes: Sequence[Any], spread: Any, constants: Mapping[str, Any]) -> None:
    """Divide one input of products by `spread`, and multiply the rows of their weights by it."""
    import onnx

    factor, smoothed = f"{value}_smoothing", f"{value}_smoothed"
    model.graph.initializer.append(onnx.numpy_helper.from_array((1 / spread).astype("float32"), factor))
    for node in nodes:
        array, scaled = onnx.numpy_helper.to_array(constants[node.input[1]]), f"{node.name}_weight"
        model.graph.initializer.append(onnx.numpy_helper.from_array(array * spread[:, None], scaled))
        node.input[0], node.input[1] = smoothed, scaled
    model.graph.node.append(onnx.helper.make_node("Mul", [value, factor], [smoothed], name=f"smooth_{value}"))


def channel_statistics(
    path: Path, values: Sequence[str], feeds: Sequence[Feed]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Largest magnitude and mean square of every channel (the last axis), over all calibration batches."""
    import numpy
    import onnx

    peaks: dict[str, Any] = {}
    squares: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="mopt-peaks-") as folder:
        copy = copy_into(path, Path(folder) / "graph")
        model = onnx.load(str(copy), load_external_data=False)
        there = {v.name for v in model.graph.output}
        model.graph.output.extend(
            onnx.helper.make_tensor_value_info(v, onnx.TensorProto.FLOAT, None)
            for v in values
            if v not in there
        )
        copy.write_bytes(model.SerializeToString())
        session = open_session(copy)
        for feed in feeds if values else ():
            for value, array in zip(values, session.run(list(values), fed(session, feed)), strict=True):
                rows = numpy.abs(array.reshape(-1, array.shape[-1]))
                peaks[value] = numpy.maximum(peaks.get(value, 0), rows.max(axis=0))
                squares[value] = squares.get(value, 0) + (rows**2).mean(axis=0) / len(feeds)
    return peaks, squares


class Reader:
    """Hands calibration batches to the quantizer, one after the other."""

    def __init__(self, path: Path, feeds: Sequence[Feed]) -> None:
        session = open_session(path)
        self._feeds = [fed(session, feed) for feed in feeds]
        self._next: Iterator[Mapping[str, Any]] = iter(self._feeds)

    def get_next(self) -> Mapping[str, Any] | None:
        return next(self._next, None)

    def rewind(self) -> None:
        self._next = iter(self._feeds)

    def __len__(self) -> int:
        return len(self._feeds)

    def set_range(self, start_index: int, end_index: int) -> None:
        self._next = iter(self._feeds[start_index:end_index])


if __name__ == "__main__":
    main(job)

"""Quantize the weights of an exported ONNX model.

Request: {source, out, scheme, method, ...}; `source` is a folder with model.onnx and mopt.json, `out` an
existing empty folder that gets the same with the quantized graph. Methods:

dynamic    8-bit integer weights, one scale an output channel; activations are scaled and rounded to
           8 bits while running. `reduce_range` keeps weights to 7 bits, None decides by this processor.
blockwise  `bits` (4 or 8) integer weights with a scale for each `block_size` weights (MatMulNBits).

Result: {versions, notes, weights}. Lookup tables keep their precision.
"""

import importlib.metadata
import json
import logging
import math
import platform
import shutil
import sys
import tempfile
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parent))
from _contract import brief, fail, main, progress

PACKAGES = ("onnxruntime", "onnx")
# Instructions that multiply 8-bit numbers without saturating 16-bit sums in between.
EXACT_INT8 = {"avx512_vnni", "avx_vnni", "amx_int8", "asimddp", "i8mm"}
DATA = "model.onnx.data"
OURS = ("model.onnx", DATA, "mopt.json")


def job(request: dict[str, Any]) -> dict[str, Any]:
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    source, out = Path(request["source"]), Path(request["out"])
    facts = read_facts(source)
    progress("reading the graph", 0.0)
    before = products(read_graph(source / "model.onnx", weights=False))
    progress("quantizing", 0.1)
    if request["method"] == "dynamic":
        weights, notes = dynamic(source, out, request.get("reduce_range"), before)
    else:
        weights, notes = blockwise(
            source, out, request["bits"], request["block_size"], request["symmetric"], before
        )
    if not weights["quantized"]:
        fail(
            "nothing-to-quantize",
            "the graph has no matrix multiplication by constant weights",
            hint=["quantize the model that was exported in 32 bits"],
        )
    progress("running it once", 0.9)
    run_once(out / "model.onnx")
    for path in sorted(source.iterdir()):
        if path.is_file() and path.name not in OURS:
            shutil.copyfile(path, out / path.name)
    facts = {**facts, "scheme": request["scheme"], "weights": weights}
    facts.pop("parity", None)
    (out / "mopt.json").write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")
    return {
        "versions": {name: importlib.metadata.version(name) for name in PACKAGES},
        "weights": weights,
        "notes": notes,
    }


def read_facts(source: Path) -> dict[str, Any]:
    try:
        facts = json.loads((source / "mopt.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        fail(
            "broken-artifact",
            f"`{source.name}` is not an ONNX folder that this product made",
            [f"mopt.json: {error}"],
            ["export the model with `mopt convert MODEL --to onnx` first"],
        )
    if facts.get("scheme") != "fp32":
        fail(
            "already-quantized",
            f"the graph is in `{facts.get('scheme')}`, not in fp32",
            hint=["quantize the model that was exported in 32 bits"],
        )
    return facts


def read_graph(path: Path, *, weights: bool) -> Any:
    """The graph, with or without the bytes of its weights."""
    import google.protobuf.message
    import onnx

    try:
        return onnx.load(str(path), load_external_data=weights)
    except (OSError, ValueError, onnx.checker.ValidationError, google.protobuf.message.Error) as error:
        fail("broken-artifact", f"`{path.name}` cannot be read", [brief(error)])


def dynamic(
    source: Path, out: Path, reduce_range: bool | None, before: "Products"
) -> tuple[dict[str, Any], list[str]]:
    from onnxruntime.quantization import QuantType, quantize_dynamic

    exact = exact_int8()
    reduced = (not exact) if reduce_range is None else reduce_range
    # The quantizer leaves scratch files beside its input, so it gets a copy to work on: linked data is
    # refused by onnx, and a graph handed over in memory would be copied there.
    with tempfile.TemporaryDirectory(dir=out, prefix=".scratch-") as scratch:
        (Path(scratch) / "model.onnx").write_bytes(without_shapes_of_weights(source / "model.onnx"))
        if (source / DATA).is_file():
            shutil.copyfile(source / DATA, Path(scratch) / DATA)
        quantize_dynamic(
            Path(scratch) / "model.onnx",
            out / "model.onnx",
            op_types_to_quantize=["MatMul"],
            per_channel=True,
            reduce_range=reduced,
            weight_type=QuantType.QInt8,
            use_external_data_format=True,
        )
    count = settle(out, "MatMulInteger")
    bits = 7 if reduced else 8
    weights = {
        "operator": "MatMulInteger",
        "bits": bits,
        "block_size": 0,
        "symmetric": True,
        "quantized": count,
        "activations": "uint8, one scale a tensor, while running",
    }
    notes = [
        f"{count} of {before.weights + before.biased} weight matrices in {bits}-bit integers, one scale an "
        "output channel",
        *before.left,
        "activations get one 8-bit scale for a whole batch: what a request is batched with changes its "
        "answer in the last digits",
    ]
    if reduced:
        notes.append(
            "weights use 7 of 8 bits: 8 would overflow on processors without VNNI"
            + ("" if exact else ", like this one")
        )
    else:
        notes.append("made for processors with VNNI or equal: on older ones 8-bit weights can overflow")
    return weights, notes


def without_shapes_of_weights(path: Path) -> bytes:
    """The graph without what it says of its weights' shapes beside them: the quantizer turns the weights of
    some products over, and would then contradict it.
    """
    model = read_graph(path, weights=False)
    constants = {tensor.name for tensor in model.graph.initializer}
    kept = [value for value in model.graph.value_info if value.name not in constants]
    del model.graph.value_info[:]
    model.graph.value_info.extend(kept)
    return model.SerializeToString()


def blockwise(
    source: Path, out: Path, bits: int, block_size: int, symmetric: bool, before: "Products"
) -> tuple[dict[str, Any], list[str]]:
    from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer

    # Accuracy level 4 lets the kernel round activations to 8 bits block by block; without it the
    # 8-bit kernel is slower than 32-bit floating point on a CPU (ten times, MiniLM, ORT 1.31).
    quantizer = MatMulNBitsQuantizer(
        read_graph(source / "model.onnx", weights=True),
        bits=bits,
        block_size=block_size,
        is_symmetric=symmetric,
        accuracy_level=4,
    )
    quantizer.process()
    progress("writing the graph", 0.7)
    quantizer.model.save_model_to_file(str(out / "model.onnx"), use_external_data_format=True)
    del quantizer
    count = settle(out, "MatMulNBits")
    weights = {
        "operator": "MatMulNBits",
        "bits": bits,
        "block_size": block_size,
        "symmetric": symmetric,
        "quantized": count,
        "activations": "float32 outside, int8 by block inside the kernel (accuracy level 4)",
    }
    kind = "symmetric" if symmetric else "asymmetric"
    notes = [
        f"{count} of {before.weights} weight matrices in {bits}-bit integers, {kind}, a 32-bit scale for "
        f"each {block_size} weights",
        *before.left,
        "the kernel rounds activations to 8 bits block by block (accuracy level 4)",
    ]
    return weights, notes


def settle(out: Path, operator: str) -> int:
    """Check what was written and give it ordinary rights. Returns how many such nodes it has."""
    import onnx

    onnx.checker.check_model(str(out / "model.onnx"))
    for path in out.iterdir():
        path.chmod(0o644)
    graph = read_graph(out / "model.onnx", weights=False).graph
    return sum(node.op_type == operator for node in graph.node)


@dataclass(frozen=True, kw_only=True)
class Products:
    """What multiplies in a graph: by constant weights, or two activations; and what is only looked up.

    `biased` products add a bias too (Gemm): the dynamic quantizer splits them, the blockwise one leaves them.
    """

    weights: int
    biased: int
    activations: int
    table_bytes: int

    @property
    def left(self) -> list[str]:
        """What stays in 32 bits, and why."""
        said = []
        if self.activations:
            said.append(f"{self.activations} products of two activations stay in 32 bits")
        if self.table_bytes:
            said.append(
                f"lookup tables ({self.table_bytes / 1e6:.1f} MB) stay in 32 bits: a lookup reads a few "
                "rows, so fewer bits would save memory but no time, and cost quality"
            )
        return said


def products(model: Any) -> Products:
    import onnx

    constant = {tensor.name: tensor for tensor in model.graph.initializer}
    kinds = [node.input[1] in constant for node in model.graph.node if node.op_type == "MatMul"]
    tables = {node.input[0] for node in model.graph.node if node.op_type == "Gather"} & set(constant)
    sizes = [
        4 * math.prod(constant[name].dims)
        for name in tables
        if constant[name].data_type == onnx.TensorProto.FLOAT
    ]
    biased = sum(node.op_type == "Gemm" and node.input[1] in constant for node in model.graph.node)
    return Products(
        weights=sum(kinds), biased=biased, activations=len(kinds) - sum(kinds), table_bytes=sum(sizes)
    )


def run_once(path: Path) -> None:
    """The runtime loads the graph and answers with finite numbers."""
    import numpy
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 2
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    fed = {value.name: numpy.ones((2, 5), dtype=numpy.int64) for value in session.get_inputs()}
    if not numpy.isfinite(session.run(None, fed)[0]).all():
        fail("quantization-failed", "the quantized graph answers with numbers that are not finite")


def exact_int8() -> bool:
    """Whether this processor adds up products of 8-bit numbers exactly. Unknown counts as no."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return platform.machine().lower() in {"arm64", "aarch64"}
    return bool(EXACT_INT8 & set(text.split()))


if __name__ == "__main__":
    main(job)

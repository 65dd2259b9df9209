"""Our 16-bit casts and 8-bit scales beside those of NVIDIA ModelOpt, on the same cleaned graph.

    PYTHON benchmarks/convert_precision/run.py GRAPH [GRAPH ...] --out FILE.json

PYTHON has the packages of the environment `onnx` and nvidia-modelopt (0.47, without its extra, which pins
another ONNX Runtime; with onnxconverter-common, lief and cppimport). A GRAPH is a folder with model.onnx in
32 bits, as `mopt convert --steps` keeps it. Each way runs in a process of its own. A row says how far the
answers are from the graph's in ONNX Runtime on the CPU, as it computes them and with every FP16 number
rounded, how many nodes and casts there are, in what the products compute, bytes, seconds and memory.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

WORKERS = Path(__file__).resolve().parents[2] / "src/model_optimizer/workers"
PRODUCTS = ("MatMul", "Gemm", "Conv")
WAYS = ("ours-fp16", "autocast-fp16", "autocast-fp16-same-nodes", "ours-bf16", "autocast-bf16", "ours-int8",
        "modelopt-int8", "modelopt-int8-same-nodes")  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("graphs", type=Path, nargs="+")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--ways", default=",".join(WAYS))
    parser.add_argument("--here", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.here:
        print("ROW " + json.dumps(measure(args.graphs[0], args.here)))
        return
    rows: list[dict[str, Any]] = json.loads(args.out.read_text()) if args.out.is_file() else []
    for graph in args.graphs:
        for way in args.ways.split(","):
            if any(row["way"] == way and row["graph"] == graph.name for row in rows):
                continue
            words = [sys.executable, __file__, graph, "--out", args.out, "--here", way]
            done = subprocess.run(words, capture_output=True, text=True, check=False)
            said = [line[4:] for line in done.stdout.splitlines() if line.startswith("ROW ")]
            row = json.loads(said[-1]) if said else {"error": done.stderr.strip()[-900:]}
            rows.append({"graph": graph.name, "way": way, **row})
            args.out.write_text(json.dumps(rows, indent=1))
            print(json.dumps(rows[-1]), flush=True)


def measure(source: Path, way: str) -> dict[str, Any]:
    sys.path.append(str(WORKERS))
    import onnx
    from _onnx_feeds import distance, read_facts, samples

    facts = read_facts(source)
    feeds = samples(source, facts)
    with tempfile.TemporaryDirectory() as place:
        out = Path(place) / "model.onnx"
        began = time.monotonic()
        make(source, out, way, facts, feeds)
        seconds = time.monotonic() - began
        row: dict[str, Any] = {
            "seconds": round(seconds, 1),
            "peak_rss_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10,
            "bytes": sum(path.stat().st_size for path in Path(place).iterdir()),
            **described(onnx.load(str(out))),
        }
        if not way.endswith("bf16"):
            row["runs_as_written"] = True
            try:
                found = distance(source / "model.onnx", out, feeds)
            except Exception as error:  # noqa: BLE001 - then without the shapes that the tool wrote down
                row |= {"runs_as_written": False, "because": str(error)[-300:]}
                stripped = onnx.load(str(out))
                del stripped.graph.value_info[:]
                onnx.save(stripped, str(out))
                found = distance(source / "model.onnx", out, feeds)
            row |= {"cosine_min": round(found.cosine, 6), "largest": round(found.largest, 6)}
            row["largest_rounded"] = round(distance(source / "model.onnx", out, feeds, plain=True).largest, 6)
        return row


def make(source: Path, out: Path, way: str, facts: dict[str, Any], feeds: list[dict[str, Any]]) -> None:
    tool, _, rest = way.partition("-")
    scheme, same = rest.removesuffix("-same-nodes"), rest.endswith("-same-nodes")
    if tool == "ours":
        ours(source, out, scheme)
    elif tool == "autocast":
        autocast(source, out, scheme, same, feeds)
    else:
        modelopt(source, out, feeds, same)


def ours(source: Path, out: Path, scheme: str) -> None:
    import onnx_cast
    import onnx_qdq

    request = {"source": str(source), "out": str(out.parent), "scheme": scheme, "least_cosine": 0.99}
    (onnx_qdq if scheme == "int8" else onnx_cast).job(request)
    for path in out.parent.iterdir():
        if not path.name.startswith("model.onnx"):
            path.unlink()


def autocast(source: Path, out: Path, scheme: str, same: bool, feeds: list[dict[str, Any]]) -> None:
    """ModelOpt AutoCast; `same` keeps the kinds of operators in 32 bits that ours keeps."""
    import numpy
    import onnx
    import onnx_cast
    from modelopt.onnx.autocast import convert_to_mixed_precision

    longest = max(feeds, key=lambda feed: next(iter(feed.values())).size)
    data = out.with_name("calibration.npz")
    numpy.savez(data, **longest)

    kept = list(onnx_cast.KEPT_HIGH) if same else None
    found = convert_to_mixed_precision(
        str(source / "model.onnx"), low_precision_type=scheme, keep_io_types=True, op_types_to_exclude=kept,
        calibration_data=str(data),
    )  # fmt: skip
    data.unlink()
    onnx.save(found, str(out))


def modelopt(source: Path, out: Path, feeds: list[dict[str, Any]], same: bool) -> None:
    """Products alone: all operators would quantize the mask, which destroys it. `same` leaves the nodes in
    high precision that ours leaves there, which are found by measuring."""
    import onnx
    from modelopt.onnx.quantization import quantize

    left: list[str] = []
    if same:
        import onnx_qdq

        with tempfile.TemporaryDirectory() as place:
            request = {"source": str(source), "out": place, "scheme": "int8", "least_cosine": 0.99}
            onnx_qdq.job(request)
            made = onnx.load(str(Path(place) / "model.onnx"))
            makers = {value: node.op_type for node in made.graph.node for value in node.output}
            left = [
                node.name
                for node in made.graph.node
                if node.op_type in PRODUCTS and makers.get(node.input[0]) != "DequantizeLinear"
            ]
    longest = max(feeds, key=lambda feed: next(iter(feed.values())).size)
    quantize(
        str(source / "model.onnx"), quantize_mode="int8", calibration_data=longest, calibration_method="max",
        calibration_eps=["cpu"], op_types_to_quantize=["MatMul", "Conv", "Gemm"], nodes_to_exclude=left,
        high_precision_dtype="fp32", output_path=str(out), log_level="ERROR",
    )  # fmt: skip


def described(model: Any) -> dict[str, Any]:
    import onnx

    kinds = {1: "fp32", 10: "fp16", 16: "bf16", 3: "int8", 2: "uint8"}
    inferred = onnx.shape_inference.infer_shapes(model).graph
    types = {v.name: v.type.tensor_type.elem_type for v in (*inferred.value_info, *inferred.output)}
    makers = {value: node.op_type for node in model.graph.node for value in node.output}
    products = Counter(
        "int8"
        if makers.get(node.input[0]) == "DequantizeLinear"
        else kinds.get(types.get(node.output[0], 0), "?")
        for node in model.graph.node
        if node.op_type in PRODUCTS
    )
    return {
        "nodes": len(model.graph.node),
        "casts": sum(node.op_type == "Cast" for node in model.graph.node),
        "products": dict(products),
    }


if __name__ == "__main__":
    main()

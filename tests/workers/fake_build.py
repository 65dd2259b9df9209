"""Builds with a stand-in for TensorRT 10 and 11; run by the onnx environment.

    python fake_build.py WORKERS OUT

OUT/answers.json gets, by version and case, what tensorrt_build.py answers and what it asked of the library.
"""

import json
import sys
from pathlib import Path
from typing import Any

WORKERS, OUT = sys.argv[1:3]
sys.path.append(WORKERS)
import _contract  # noqa: E402
import fake_tensorrt  # noqa: E402
import numpy  # noqa: E402
import onnx  # noqa: E402
import tensorrt_build  # noqa: E402
from onnx import TensorProto, helper, numpy_helper  # noqa: E402


def graph(folder: Path, kind: str) -> Path:
    """Two products in one number format, of a free number of rows."""
    form = {"fp16": TensorProto.FLOAT16, "fp32": TensorProto.FLOAT}[kind]
    number = {"fp16": "float16", "fp32": "float32"}[kind]
    weights = [
        numpy_helper.from_array(numpy.full((8, 8), 0.1, number), name)
        for name in ("one.weight", "two.weight")
    ]
    nodes = [
        helper.make_node("MatMul", ["x", "one.weight"], ["hidden"], name="one"),
        helper.make_node("MatMul", ["hidden", "two.weight"], ["answer"], name="two"),
    ]
    takes = [helper.make_tensor_value_info("x", form, ["batch", 8])]
    gives = [helper.make_tensor_value_info("answer", form, ["batch", 8])]
    made = helper.make_model(
        helper.make_graph(nodes, "g", takes, gives, weights), opset_imports=[helper.make_opsetid("", 20)]
    )
    made.ir_version = 10
    folder.mkdir(parents=True)
    onnx.save(made, str(folder / "model.onnx"))
    (folder / "mopt.json").write_text(json.dumps({"scheme": kind}))
    return folder


PROFILE = [{"batch": [1, 4, 8]}]
CASES: dict[str, dict[str, Any]] = {
    "right": {},
    "again": {},
    "no-profile": {"profiles": []},
    "options": {
        "workspace_bytes": 2**30, "weight_streaming": True, "version_compatible": True,
        "hardware_compatible": True, "optimization_level": 5,
    },
    "fp32-graph": {"source": "fp32"},
    "fp32-engine": {"words": "FP32"},
}  # fmt: skip


def build(version: str, case: str, changed: dict[str, Any]) -> dict[str, Any]:
    place = Path(OUT) / version
    out = place / case
    out.mkdir(parents=True)
    source = place / changed.pop("source", "fp16")
    fake_tensorrt.FAULT.clear()
    fake_tensorrt.FAULT.update({"words": changed.pop("words", "FP16")})
    fake_tensorrt.CALLS.clear()
    request = {
        "source": str(source), "out": str(out), "scheme": "fp16", "flavour": "tensorrt", "profiles": PROFILE,
        "cache": str(place / "cache"), **changed,
    }  # fmt: skip
    try:
        found: dict[str, Any] = tensorrt_build.job(request)
    except _contract.Failure as failure:
        found = {"error": failure.reference, "message": failure.message, "cause": list(failure.cause)}
    if (out / "mopt.json").is_file():
        found["record"] = json.loads((out / "mopt.json").read_text())["engine"]
    kept = sorted(path.name for path in (place / "cache").glob("*"))
    size = sum(path.stat().st_size for path in (place / "cache").glob("*"))
    return {
        **found, "calls": list(fake_tensorrt.CALLS), "cache": kept, "cached": size,
        "files": sorted(path.name for path in out.iterdir()),
    }  # fmt: skip


tensorrt_build.gpu_count = lambda: 1
tensorrt_build.current_device = lambda: tensorrt_build.Device("NVIDIA Test", "8.9")
answers: dict[str, Any] = {}
for version in ("10.16.1", "11.4.0"):
    fake_tensorrt.install(version)
    for kind in ("fp16", "fp32"):
        graph(Path(OUT) / version / kind, kind)
    for case, changed in CASES.items():
        answers[f"{version} {case}"] = build(version, case, dict(changed))
(Path(OUT) / "answers.json").write_text(json.dumps(answers))

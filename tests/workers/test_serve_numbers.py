"""Types of numbers that a served graph takes and gives, as words of the Open Inference Protocol."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

import model_optimizer.workers as workers

pytestmark = pytest.mark.engine

ASK = """
import json, sys
sys.path.append(sys.argv[1])
from types import SimpleNamespace as Tensor
from _serve_tensors import arrays_of
found = []
for kind, datatype, data in json.loads(sys.argv[2]):
    facts = {"inputs": [{"name": "x", "type": kind, "shape": ["n"]}]}
    try:
        array = arrays_of([Tensor(name="x", shape=[len(data)], datatype=datatype, data=data)], facts)["x"]
        found.append([str(array.dtype), array.tolist()])
    except Exception as refused:
        found.append([str(getattr(refused, "status", type(refused).__name__)), str(refused)])
print(json.dumps(found))
"""

CASES: list[tuple[str, str, list[Any], str, Any]] = [
    ("tensor(uint8)", "UINT8", [0, 255], "uint8", [0, 255]),
    ("tensor(int32)", "INT32", [-7], "int32", [-7]),
    ("tensor(bool)", "BOOL", [True, False], "bool", [True, False]),
    ("UInt8", "UINT8", [3], "uint8", [3]),
    ("tensor(double)", "FP64", [0.5], "float64", [0.5]),
    ("tensor(uint8)", "UINT8", [256], "400", "holds what is no number of UINT8"),
    ("tensor(uint8)", "FP32", [1], "400", "is UINT8, not FP32"),
    ("tensor(string)", "BYTES", ["a"], "400", "tensor(string), which is no number"),
]


def test_each_type_is_taken_or_refused(onnx_env_python: Path) -> None:
    asked = json.dumps([case[:3] for case in CASES])
    done = subprocess.run(
        [onnx_env_python, "-P", "-c", ASK, Path(workers.__file__).parent, asked],
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    for (_kind, _datatype, _data, dtype, values), (got, what) in zip(
        CASES, json.loads(done.stdout), strict=True
    ):
        assert got == dtype
        assert values in what if isinstance(values, str) else values == what

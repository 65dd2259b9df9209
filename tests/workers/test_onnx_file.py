"""Files of graphs: what is written twice is not kept twice."""

import json
import subprocess
from pathlib import Path

import pytest

import model_optimizer.workers as workers

pytestmark = pytest.mark.engine

TWICE = """
import json, sys
sys.path.append(sys.argv[1])
from pathlib import Path
import numpy
from _onnx_file import save_graph
from onnx import TensorProto, helper, load, numpy_helper
path = Path(sys.argv[2]) / "model.onnx"
sizes = []
for number in (1.0, 2.0):
    weight = numpy_helper.from_array(numpy.full((64, 64), number, "float32"), "weight")
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "weight"], ["y"])], "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 64])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 64])], [weight],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)])
    model.ir_version = 10
    save_graph(model, path)
    sizes.append(path.with_name("model.onnx.data").stat().st_size)
last = numpy_helper.to_array(load(str(path)).graph.initializer[0]).max()
print(json.dumps({"sizes": sizes, "last": float(last)}))
"""


def test_a_graph_that_is_written_again_keeps_its_last_weights_alone(
    onnx_env_python: Path, tmp_path: Path
) -> None:
    """INT8 writes a graph anew for each product that it leaves wider: MiniLM's was twice its size."""
    done = subprocess.run(
        [onnx_env_python, "-P", "-c", TWICE, Path(workers.__file__).parent, tmp_path],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["sizes"] == [64 * 64 * 4] * 2
    assert found["last"] == 2.0

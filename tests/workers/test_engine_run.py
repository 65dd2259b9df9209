"""TensorRT's interface: the real wheel for RTX as far as it goes without a GPU, a stand-in for 10 and 11.

The stand-in (fake_tensorrt.py) has the documented classes. It shows that what is called exists, in the
documented order; that TensorRT itself does what it says was not run.
"""

import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import model_optimizer.workers as workers
from model_optimizer.core import MoptError
from model_optimizer.system import environments

pytestmark = pytest.mark.engine

WORKERS = Path(workers.__file__).parent
HERE = Path(__file__).parent
VERSIONS = ["10.16.1", "11.4.0"]

MARKED = """
import json, sys
sys.path += [sys.argv[1], sys.argv[2]]
import _contract, _engine_device, _engine_run, numpy, tensorrt_build
from pathlib import Path
from onnx import TensorProto, helper, numpy_helper, save
weights = [numpy_helper.from_array(numpy.full((8, 8), 0.1, "float16"), n) for n in ("w1", "w2")]
nodes = [
    helper.make_node("MatMul", ["x", "w1"], ["hidden"], name="one"),
    helper.make_node("Relu", ["hidden"], ["positive"], name="relu"),
    helper.make_node("MatMul", ["positive", "w2"], ["answer"], name="two"),
]
takes = [helper.make_tensor_value_info("x", TensorProto.FLOAT16, ["batch", 8])]
gives = [helper.make_tensor_value_info("answer", TensorProto.FLOAT16, ["batch", 8])]
made = helper.make_model(
    helper.make_graph(nodes, "g", takes, gives, weights), opset_imports=[helper.make_opsetid("", 20)]
)
made.ir_version = 10
path = Path(sys.argv[3]) / "model.onnx"
save(made, str(path))
built = _engine_run.Built(tensorrt_build.load_library("rtx"), None, capability="8.9")
graph = _engine_run.EngineGraph(path, built)
feed = {"x": numpy.ones((2, 8), "float16")}
sizes = [built.plan(path.read_bytes(), names, feed).nbytes for names in (["answer"], ["hidden", "positive"])]
errors = []
for call in (lambda: built.plan(path.read_bytes(), ["nowhere"], feed), _engine_device.Driver):
    try:
        call()
    except _contract.Failure as failure:
        errors.append(failure.reference)
print(json.dumps({"markable": sorted(graph.markable()), "sizes": sizes, "errors": errors}))
"""


def test_values_are_marked_with_the_real_wheel(tmp_path: Path) -> None:
    if os.environ.get("MOPT_TEST_NO_ENGINES") == "1":
        pytest.skip("MOPT_TEST_NO_ENGINES=1: no `tensorrt_rtx` environment is made or used")
    try:
        python = environments.ensure("tensorrt_rtx", progress=lambda _text, _share: None).path
    except MoptError as error:
        pytest.fail("\n".join([error.message, *error.cause, *error.hint]))
    done = subprocess.run(
        [python, "-P", "-c", MARKED, WORKERS, HERE, tmp_path],
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert {"hidden", "positive", "answer"} <= set(found["markable"])
    assert min(found["sizes"]) > 1_000
    assert found["errors"][0] == "value-unknown"
    if len(found["errors"]) == 2:  # no GPU here
        assert found["errors"][1] in ("no-gpu", "cuda-failed")


@pytest.fixture(scope="module")
def builds(onnx_env_python: Path, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Any]:
    out = tmp_path_factory.mktemp("fake-builds")
    done = subprocess.run(
        [onnx_env_python, HERE / "fake_build.py", WORKERS, out],
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads((out / "answers.json").read_text())


@pytest.mark.parametrize("version", VERSIONS)
def test_the_inspector_proves_the_content(builds: Mapping[str, Any], version: str) -> None:
    found = builds[f"{version} right"]
    assert found["versions"] == {"TensorRT": version}
    assert found["content"]["evidence"] == "inspector"
    assert found["content"]["engine_products"] == {"Half": 2}
    assert found["files"] == ["build.log.gz", "content.json", "model.engine", "mopt.json"]


@pytest.mark.parametrize("version", VERSIONS)
def test_networks_are_strongly_typed_and_no_precision_flag_is_set(
    builds: Mapping[str, Any], version: str
) -> None:
    calls = builds[f"{version} right"]["calls"]
    assert "create_network 2" in calls
    assert not [call for call in calls if call.startswith("set_flag")]


@pytest.mark.parametrize("version", VERSIONS)
def test_timings_are_kept_by_version_and_device_and_used_again(
    builds: Mapping[str, Any], version: str
) -> None:
    first, again = builds[f"{version} right"], builds[f"{version} again"]
    assert first["cache"] == [f"tensorrt-{version}-NVIDIA-Test.timing"]
    assert "create_timing_cache 0" in first["calls"]
    assert f"create_timing_cache {first['cached']}" in again["calls"]


@pytest.mark.parametrize("version", VERSIONS)
def test_the_record_says_where_an_engine_runs(builds: Mapping[str, Any], version: str) -> None:
    plain, free = builds[f"{version} right"], builds[f"{version} options"]["record"]
    kept = plain["record"]
    assert (kept["version"], kept["compute_capabilities"]) == (version, ["8.9"])
    assert (kept["device"], kept["built_on"]) == ("NVIDIA Test", "8.9")
    assert not kept["hardware_compatible"] and not kept["version_compatible"]
    assert plain["engine"].items() <= kept.items()
    said = f"for compute capability 8.9, version {version}, built on NVIDIA Test"
    assert any(note.startswith(said) for note in plain["notes"])
    assert (free["compute_capabilities"], free["built_on"]) == ([], "8.9")
    assert free["hardware_compatible"] and free["version_compatible"]


@pytest.mark.parametrize("version", VERSIONS)
def test_options_reach_the_builder(builds: Mapping[str, Any], version: str) -> None:
    calls = builds[f"{version} options"]["calls"]
    assert {"set_flag WEIGHT_STREAMING", "set_flag VERSION_COMPATIBLE"} <= set(calls)
    (build,) = [call for call in calls if call.startswith("build ")]
    assert "AMPERE_PLUS" in build and str(2**30) in build


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("case", "reference"),
    [("no-profile", "no-profile"), ("fp32-graph", "wrong-precision"), ("fp32-engine", "wrong-precision")],
)
def test_what_must_not_be_kept_is_not(
    builds: Mapping[str, Any], version: str, case: str, reference: str
) -> None:
    found = builds[f"{version} {case}"]
    assert found["error"] == reference
    assert found["files"] == []

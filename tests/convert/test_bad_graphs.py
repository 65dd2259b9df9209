"""`mopt convert` and `mopt verify` on files that cannot be used: one clear error, exit code 2 or 3, nothing written."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from model_optimizer.core import MoptError
from model_optimizer.system import environments

pytestmark = pytest.mark.engine

MAKE = """
import sys
from pathlib import Path
import numpy
import onnx
from onnx import TensorProto, helper, numpy_helper
place = Path(sys.argv[1])
def make(name, op="MatMul", opset=20, external=False):
    weight = numpy_helper.from_array(numpy.full((8, 8), 0.1, "float32"), "weight")
    node = helper.make_node(op, ["x", "weight"], ["y"], name="one")
    scope = onnx.StringStringEntryProto(key="pkg.torch.onnx.name_scopes", value="['', 'model.odd', 'odd']")
    node.metadata_props.append(scope)
    sizes = ["batch", 8]
    graph = helper.make_graph(
        [node], "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, sizes)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, sizes)], [weight],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    model.ir_version = 10
    onnx.save_model(
        model, str(place / name), save_as_external_data=external, location=name + ".data", size_threshold=0
    )
make("good.onnx")
make("new.onnx", opset=99)
make("odd.onnx", op="Frobnicate")
make("lost.onnx", external=True)
(place / "lost.onnx.data").unlink()
"""
RTX = ("--to", "tensorrt-rtx", "--compute-capability", "8.9")
PROFILE = ("--profile", "batch=1:4:8")


@pytest.fixture(scope="module")
def place(onnx_env_python: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    if os.environ.get("MOPT_TEST_NO_ENGINES") == "1":
        pytest.skip("MOPT_TEST_NO_ENGINES=1: no `tensorrt_rtx` environment is made or used")
    try:
        environments.ensure("tensorrt_rtx", progress=lambda _text, _share: None)
    except MoptError as error:
        pytest.fail("\n".join([error.message, *error.cause, *error.hint]))
    folder = tmp_path_factory.mktemp("graphs")
    subprocess.run([onnx_env_python, "-P", "-c", MAKE, folder], check=True, timeout=120)
    (folder / "text.onnx").write_text("no graph at all")
    return folder


def mopt(*words: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "model_optimizer", *words],
        capture_output=True, text=True, timeout=300, check=False, env={**os.environ, "NO_COLOR": "1"},
    )  # fmt: skip


@pytest.mark.parametrize(
    ("name", "words", "says"),
    [
        ("good", ("--scheme", "fp32"), ["error[no-profile]", "batch", "hint: --profile batch=MIN:OPT:MAX"]),
        ("new", PROFILE, ["error[opset-too-new]", "opset 99", "hint: "]),
        (
            "odd",
            PROFILE,
            ["error[unsupported-operator]", "Frobnicate: 1 nodes (one) from model.odd", "hint: "],
        ),
        ("lost", PROFILE, ["error[external-data-missing]", "lost.onnx.data", "hint: copy"]),
        ("text", PROFILE, ["error[broken-artifact]"]),
        ("nothing", PROFILE, ["there is no file", "hint: "]),
    ],
)
def test_a_graph_that_cannot_be_built_is_wrong_input(
    place: Path, tmp_path: Path, name: str, words: tuple[str, ...], says: list[str]
) -> None:
    out = tmp_path / "made" / "engine"
    done = mopt("convert", place / f"{name}.onnx", *RTX, *words, "--out", out)
    assert done.returncode == 2, done.stderr
    for text in says:
        assert text in done.stderr
    assert not out.exists()
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_a_graph_in_32_bits_is_no_fp16_engine_and_the_hint_fits_a_bare_file(
    place: Path, tmp_path: Path
) -> None:
    done = mopt("convert", place / "good.onnx", *RTX, *PROFILE, "--scheme", "fp16", "--out", tmp_path / "out")
    assert done.returncode == 5, done.stderr
    assert "error[wrong-precision]" in done.stderr
    assert "a bare .onnx file is built as it is" in done.stderr
    assert not (tmp_path / "out").exists()


def test_an_engine_on_a_machine_without_gpu(place: Path, tmp_path: Path) -> None:
    """It is built here, and neither verified nor served here."""
    engine = tmp_path / "engine"
    done = mopt("convert", place / "good.onnx", *RTX, *PROFILE, "--scheme", "fp32", "--out", engine)
    assert done.returncode == 0, done.stderr
    if Path("/dev/nvidia0").exists():
        pytest.skip("there is a GPU here")
    tiny = Path(__file__).parents[2] / "examples/models/tiny-qwen3"
    done = mopt("verify", engine, "--against", tiny, "--layer", "operators")
    assert done.returncode == 3, done.stderr
    assert "runs on a GPU, and this machine has none" in done.stderr
    assert "hint: verify the graph" in done.stderr
    done = mopt("verify", engine, "--against", tiny)
    assert (done.returncode, "is an engine" in done.stderr) == (2, True), done.stderr
    done = mopt("serve", engine)
    assert (done.returncode, "error[no-gpu]" in done.stderr) == (3, True), done.stderr
    done = mopt("deploy", engine, "--to", "triton", "--out", tmp_path / "triton")
    assert (done.returncode, "error[engine-of-another-library]" in done.stderr) == (2, True), done.stderr

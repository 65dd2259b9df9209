"""`mopt convert` and `mopt verify` on files that cannot be used: one clear error, exit code 2 or 3, nothing written."""

import json
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
def make(name, op="MatMul", opset=20, external=False, size="batch", number=0.1, domain=""):
    weight = numpy_helper.from_array(numpy.full((8, 8), number, "float32"), "weight")
    node = helper.make_node(op, ["x", "weight"], ["y"], name="one", domain=domain)
    scope = onnx.StringStringEntryProto(key="pkg.torch.onnx.name_scopes", value="['', 'model.odd', 'odd']")
    node.metadata_props.append(scope)
    sizes = list(size) if isinstance(size, tuple) else [size, 8]
    graph = helper.make_graph(
        [node], "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, sizes)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, sizes)], [weight],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset), helper.make_opsetid("com.acme", 1)])
    model.ir_version = 10
    onnx.save_model(
        model, str(place / name), save_as_external_data=external, location=name + ".data", size_threshold=0
    )
make("good.onnx")
make("new.onnx", opset=99)
make("odd.onnx", op="Frobnicate")
make("lost.onnx", external=True)
(place / "lost.onnx.data").unlink()
make("rows.onnx", size="rows")
make("short.onnx", external=True)
(place / "short.onnx.data").write_bytes(b"12")
make("astray.onnx", external=True)
astray = onnx.load(place / "astray.onnx", load_external_data=False)
next(e for e in astray.graph.initializer[0].external_data if e.key == "location").value = "../../etc/passwd"
(place / "astray.onnx").write_bytes(astray.SerializeToString())
kinds = {"strings": (TensorProto.STRING, 1), "brain": (TensorProto.BFLOAT16, 1), "written": (1, TensorProto.STRING)}
weight = numpy_helper.from_array(numpy.eye(8, dtype="float32"), "weight")
for name, (given, said) in kinds.items():
    nodes = [
        helper.make_node("Cast", ["x"], ["a"], to=1),
        helper.make_node("MatMul", ["a", "weight"], ["b"]),
        helper.make_node("Cast", ["b"], ["y"], to=said),
    ]
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", given, ["batch", 8])],
        [helper.make_tensor_value_info("y", said, ["batch", 8])], [weight],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)])
    model.ir_version = 10
    onnx.save(model, place / (name + ".onnx"))
def tokens(name, sizes, table=50):
    # A table of tokens and a product; a cache that comes in and is not read.
    nodes = [
        helper.make_node("Gather", ["table", "input_ids"], ["a"]),
        helper.make_node("MatMul", ["a", "weight"], ["b"]),
        helper.make_node("Cast", ["attention_mask"], ["m"], to=1),
        helper.make_node("Unsqueeze", ["m", "axis"], ["n"]),
        helper.make_node("Mul", ["b", "n"], ["y"]),
    ]
    given = [helper.make_tensor_value_info(n, TensorProto.INT64, sizes) for n in ("input_ids", "attention_mask")]
    given.append(helper.make_tensor_value_info("past_key_values.0.key", 1, [sizes[0], 2, "past_sequence_length", 4]))
    inits = {"table": numpy.random.rand(table, 8).astype("float32"), "weight": numpy.eye(8, dtype="float32"),
             "axis": numpy.array([2])}
    graph = helper.make_graph(
        nodes, "g", given, [helper.make_tensor_value_info("y", 1, [*sizes, 8])],
        [numpy_helper.from_array(array, key) for key, array in inits.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)])
    model.ir_version = 10
    onnx.save(model, place / (name + ".onnx"))
tokens("tokens", ["batch_size", "sequence_length"])
tokens("fixed", [2, 16])
make("old.onnx", opset=5)
make("former.onnx", opset=11)
make("nan.onnx", number=float("nan"))
make("clash.onnx", size=(3, 7))
make("custom.onnx", op="Odd", domain="com.acme")
(place / "cut.onnx").write_bytes((place / "good.onnx").read_bytes()[:300])
(place / "pickle.onnx").write_bytes(bytes([128, 4]) + b"abc")
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
        ("rows", ("--scheme", "fp32"), ["error[no-profile]", "rows", "hint: --profile rows=MIN:OPT:MAX"]),
        ("rows", PROFILE, ["error[no-profile]", "x: rows x 8"]),
        ("good", ("--profile", "batch=1:4:8,width=1:2:3"), ["no free dimension width", "hint: "]),
        (
            "good",
            (*PROFILE, "--concurrency", "9"),
            ["error[profile]", "9 requests at once are asked, batch ends at 8"],
        ),
        ("new", PROFILE, ["error[opset-too-new]", "opset 99", "hint: "]),
        (
            "odd",
            PROFILE,
            ["error[unsupported-operator]", "Frobnicate: 1 nodes (one) from model.odd", "hint: "],
        ),
        ("lost", PROFILE, ["error[external-data-missing]", "lost.onnx.data", "hint: copy"]),
        ("short", PROFILE, ["error[external-data-missing]", "2 bytes are there, 256 are needed"]),
        ("astray", PROFILE, ["error[broken-artifact]", "points outside its folder", "hint: "]),
        ("text", PROFILE, ["error[broken-artifact]", "hint: "]),
        ("cut", PROFILE, ["error[broken-artifact]", "the file ends before"]),
        ("pickle", PROFILE, ["error[pickle]", "hint: "]),
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


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("strings", ["error[type-unknown]", "`x` is of string"]),
        ("brain", ["error[type-unknown]", "`x` is of bfloat16"]),
        ("written", ["error[type-unknown]", "`y` is of string"]),
        ("old", ["error[opset-too-old]", "opset 5"]),
        ("nan", ["error[broken-artifact]", "64 of 64 numbers of `weight` are NaN"]),
        ("clash", ["error[broken-artifact]", "Incompatible dimensions"]),
        ("custom", ["error[unsupported-operator]", "com.acme::Odd: 1 nodes (one) from model.odd"]),
    ],
)
def test_a_graph_that_cannot_be_compared_or_cast_is_wrong_input(
    place: Path, tmp_path: Path, name: str, says: list[str]
) -> None:
    done = mopt(
        "convert", place / f"{name}.onnx", "--to", "onnxruntime", "--scheme", "fp16", "--out", tmp_path / "o"
    )
    assert done.returncode == 2, done.stderr
    for text in (*says, "hint: "):
        assert text in done.stderr
    assert str(tmp_path) not in done.stderr.partition("error[")[2]
    assert list(tmp_path.rglob("*")) == []


@pytest.mark.parametrize("name", ["tokens", "fixed"])
def test_a_graph_of_tokens_from_elsewhere_is_asked_what_it_takes(
    place: Path, tmp_path: Path, name: str
) -> None:
    """Without a config.json: as many tokens as its table has, sizes that it fixes, an empty cache."""
    out = tmp_path / "out"
    done = mopt("convert", place / f"{name}.onnx", "--to", "onnxruntime", "--scheme", "int8", "--out", out)
    assert done.returncode == 0, done.stderr
    assert "1 products in int8" in done.stdout and "the clean-up was dropped" not in done.stdout


def test_a_folder_of_graphs_alone_is_told_from_a_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "onnx").mkdir()
    for name in ("config.json", "onnx/model_fp16.onnx"):
        (tmp_path / name).write_text("{}")
    done = mopt("convert", tmp_path, "--to", "onnx", "--out", tmp_path / "out")
    assert done.returncode == 2
    assert "error[model-is-a-graph]" in done.stderr
    assert f"hint: name the graph: mopt convert {tmp_path}/onnx/model_fp16.onnx" in done.stderr


def test_a_graph_of_an_older_opset_is_written_anew_for_int8(place: Path, tmp_path: Path) -> None:
    """Scales in 16 bits came with opset 19; most graphs of image models are older."""
    for scheme in ("int8", "fp8"):
        out = tmp_path / scheme
        done = mopt("convert", place / "former.onnx", "--to", "onnx_typed", "--scheme", scheme, "--out", out)
        assert done.returncode == 0, done.stderr
        assert sorted(path.name for path in out.iterdir() if path.name.startswith(".")) == []
    done = mopt(
        "convert", place / "former.onnx", *RTX, *PROFILE, "--scheme", "int8", "--out", tmp_path / "rtx"
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("scheme", ["fp16", "int8"])
def test_a_bare_graph_in_32_bits_is_cast_and_compared(place: Path, tmp_path: Path, scheme: str) -> None:
    for to in (RTX, ("--to", "onnxruntime")):
        out = tmp_path / to[1]
        done = mopt("convert", place / "good.onnx", *to, "--scheme", scheme, "--out", out)
        assert done.returncode == 0, done.stderr
        links = json.loads((out / "chain.json").read_text())["links"]
        assert links[0]["tool"] == "onnx_taken" and links[0]["made_from"].startswith("sha256:")
        assert any("beside 32 bits: cosine at least" in note for link in links for note in link["notes"])
        assert json.loads((out / "mopt.json").read_text())["scheme"] == scheme
    products = json.loads((tmp_path / "tensorrt-rtx/content.json").read_text())["engine_products"]
    assert products == {{"fp16": "Half", "int8": "Int8"}[scheme]: 1}


def test_an_engine_that_is_silently_in_32_bits_is_thrown_away(place: Path, tmp_path: Path) -> None:
    """A folder whose record says FP16, and whose graph is in 32 bits."""
    done = mopt("convert", place / "good.onnx", "--to", "onnxruntime", "--out", tmp_path / "graph")
    assert done.returncode == 0, done.stderr
    record = tmp_path / "graph/mopt.json"
    record.write_text(json.dumps({**json.loads(record.read_text()), "scheme": "fp16"}))
    done = mopt("convert", tmp_path / "graph", *RTX, *PROFILE, "--scheme", "fp16", "--out", tmp_path / "out")
    assert done.returncode == 5, done.stderr
    assert "error[wrong-precision]" in done.stderr
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
    assert (done.returncode, "is an engine" in done.stderr) == (3, True), done.stderr
    done = mopt("serve", engine)
    assert (done.returncode, "error[no-gpu]" in done.stderr) == (3, True), done.stderr
    done = mopt("deploy", engine, "--to", "triton", "--out", tmp_path / "triton")
    assert (done.returncode, "error[engine-of-another-library]" in done.stderr) == (2, True), done.stderr

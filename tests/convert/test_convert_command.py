"""`mopt convert` down to an engine, as a user runs it: one real conversion, and what is refused."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from model_optimizer.cli.app import app
from model_optimizer.core import Host, HostError, MoptError
from model_optimizer.system import environments, probe

BERT = {
    "model_type": "bert", "architectures": ["BertModel"], "vocab_size": 320, "hidden_size": 64, "num_hidden_layers": 2,
    "num_attention_heads": 4, "intermediate_size": 128, "max_position_embeddings": 128, "type_vocab_size": 2,
}  # fmt: skip


TINY = Path(__file__).parents[2] / "examples/models/tiny-qwen3"


def mopt(*words: str | Path, timeout_s: int = 300) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "model_optimizer", "convert", *map(str, words)]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=timeout_s, check=False, env=dict(os.environ)
    )


@pytest.fixture(scope="session")
def rtx_python() -> Path:
    if os.environ.get("MOPT_TEST_NO_ENGINES") == "1":
        pytest.skip("MOPT_TEST_NO_ENGINES=1: no `tensorrt_rtx` environment is made or used")
    try:
        return environments.ensure("tensorrt_rtx", progress=lambda _text, _share: None).path
    except MoptError as error:
        pytest.fail("\n".join([error.message, *error.cause, *error.hint]))


@pytest.fixture(scope="session")
def resnet(onnx_env_python: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    import model_optimizer.workers as workers

    out = tmp_path_factory.mktemp("vision")
    script = Path(__file__).parents[1] / "workers/make_vision.py"
    done = subprocess.run(
        [onnx_env_python, "-P", script, Path(workers.__file__).parent, out],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return out / "resnet"


@pytest.mark.engine
def test_a_model_becomes_an_engine_whose_links_can_be_made_again(
    resnet: Path, rtx_python: Path, onnx_env_python: Path, tmp_path: Path
) -> None:
    del rtx_python, onnx_env_python
    out, steps = tmp_path / "engine", tmp_path / "steps"
    done = mopt(resnet, "--to", "tensorrt-rtx", "--compute-capability", "8.6,8.9,12.0", "--concurrency", "4",
                "--steps", steps, "--out", out)  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "fp16 in tensorrt_rtx_engine" in done.stdout and "content (indirect)" in done.stdout
    content = json.loads((out / "content.json").read_text())
    assert content["engine_products"] == {"Half": 13}
    facts = json.loads((out / "mopt.json").read_text())
    assert facts["engine"]["profiles"] == [{"batch": [1, 4, 4]}]
    assert [link["tool"] for link in json.loads((out / "chain.json").read_text())["links"]] == [
        "onnx_vision", "onnx_clean", "onnx_cast", "engine_tensorrt_rtx",
    ]  # fmt: skip

    cast = steps / "3-onnx_cast-fp16"
    script, again = cast / "reproduce.py", tmp_path / "again"
    made = subprocess.run(
        [sys.executable, script, steps / "2-onnx_clean-fp32", again],
        capture_output=True,
        text=True,
        check=False,
    )
    assert made.returncode == 0, made.stderr
    assert "the same again: 4 files" in made.stdout
    assert (again / "model.onnx").read_bytes() == (cast / "model.onnx").read_bytes()

    assert not list(tmp_path.glob(".*"))


@pytest.fixture
def bert(tmp_path: Path) -> Path:
    """The shape of a model alone: enough for what is refused before work."""
    from model_optimizer.testing import checkpoints

    del checkpoints
    folder = tmp_path / "bert"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(BERT))
    header = json.dumps({"w": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}).encode()
    (folder / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + bytes(8))
    return folder


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (["--to", "tensorrt-rtx", "--compute-capability", "9.0"], 2, "error[capability-unsupported]"),
        (["--to", "tensorrt-rtx", "--compute-capability", "ada"], 2, "is no compute capability"),
        (
            ["--to", "tensorrt-rtx", "--scheme", "fp8", "--compute-capability", "8.6"],
            2,
            "fp8 can be built for 8.9",
        ),
        (["--to", "tensorrt-rtx", "--profile", "batch=3:2:1"], 2, "error[profile]"),
        (
            ["--to", "tensorrt-rtx", "--profile", "sequence=1:8:16", "--prompt-tokens", "64"],
            2,
            "cannot hold the load",
        ),
        (["--to", "tensorrt-rtx", "--prompt-tokens", "1000"], 2, "too long for this model"),
        (["--to", "tensorrt-rtx", "--strip-weights"], 2, "built where the GPU is"),
        (["--to", "nothing"], 2, "`nothing` is neither a format nor an engine"),
    ],
)
def test_bad_requests_are_refused_before_work(bert: Path, words: list[str], code: int, says: str) -> None:
    out = bert.parent / "out"
    done = mopt(bert, *words, "--out", out)
    assert done.returncode == code, done.stderr
    assert says in done.stderr
    assert "hint: " in done.stderr
    assert not out.exists()


@pytest.mark.parametrize(
    ("out", "steps", "says"),
    [
        ("bert/out", None, "lies inside of the model that is read"),
        ("bert", None, "exists already"),
        ("bert/..", None, "exists already"),
        ("link/out", None, "lies inside of the model that is read"),
        ("out", "bert/steps", "lies inside of the model that is read"),
        ("out", "out", "lie in each other"),
        ("out", "out/steps", "lie in each other"),
        ("steps/out", "steps", "lie in each other"),
    ],
)
def test_nothing_is_made_inside_of_the_model(bert: Path, out: str, steps: str | None, says: str) -> None:
    place = bert.parent
    (place / "link").symlink_to("bert")
    before = sorted(place.rglob("*"))
    kept = ("--steps", place / steps) if steps else ()
    done = mopt(bert, "--to", "onnx", "--out", place / out, *kept)
    assert done.returncode == 2, done.stderr
    assert says in done.stderr and "hint: " in done.stderr
    assert sorted(place.rglob("*")) == before


@pytest.mark.parametrize("file", ["", "model.engine"])
def test_an_engine_is_no_source(tmp_path: Path, file: str) -> None:
    (tmp_path / "model.engine").touch()
    (tmp_path / "config.json").write_text("{}")
    done = mopt(tmp_path / file, "--to", "onnx", "--out", tmp_path / "out")
    assert done.returncode == 2
    assert "error[engine-as-source]" in done.stderr
    assert "--steps" in done.stderr
    assert not (tmp_path / "out").exists()


def test_a_folder_with_an_engine_is_verified_as_one_and_not_as_a_checkpoint(tmp_path: Path) -> None:
    for name in ("model.engine", "config.json", "mopt.json"):
        (tmp_path / name).write_text("{}")
    with pytest.raises(HostError, match="is an engine, which answers only on its GPU") as caught:
        CliRunner().invoke(app, ["verify", str(tmp_path), "--against", str(TINY)], catch_exceptions=False)
    assert caught.value.exit_code == 3


def test_tensorrt_is_not_fetched_where_no_gpu_could_build_with_it(
    bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probe, "probe", lambda: Host(gpus=()))
    words = ["convert", str(bert), "--to", "tensorrt", "--out", str(tmp_path / "out")]
    with pytest.raises(HostError, match="there is none here") as caught:
        CliRunner().invoke(app, words, catch_exceptions=False)
    assert caught.value.exit_code == 3 and any("tensorrt-rtx" in hint for hint in caught.value.hint)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["model.pt", "weights.bin", "net.pkl"])
def test_pickles_are_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"\x80\x04")
    done = mopt(tmp_path / name, "--to", "onnx", "--out", tmp_path / "out")
    assert done.returncode == 2
    assert "error[pickle]" in done.stderr


def test_a_dry_run_says_every_step(bert: Path) -> None:
    done = mopt(bert, "--to", "tensorrt-rtx", "--scheme", "int8", "--dry-run", "--out", bert.parent / "out")
    assert done.returncode == 0, done.stderr
    assert "3. onnx_qdq: onnx_typed (fp32) -> onnx_typed (int8)" in done.stdout
    assert "4. engine_tensorrt_rtx" in done.stdout

"""Model repositories of Triton: the configuration matches the artefact."""

import json
from pathlib import Path
from typing import Any

import pytest
from inline_snapshot import snapshot

from model_optimizer.core import UsageError
from model_optimizer.deploy import triton

VALUES: dict[str, Any] = {
    "inputs": [
        {"name": "input_ids", "type": "tensor(int64)", "shape": ["batch", "sequence"]},
        {"name": "attention_mask", "type": "tensor(int64)", "shape": ["batch", "sequence"]},
    ],
    "outputs": [{"name": "sentence_embedding", "type": "tensor(float)", "shape": ["batch", 384]}],
}
ENGINE: dict[str, Any] = {
    "file": "model.engine",
    "library": "tensorrt",
    "version": "11.4.0",
    "profiles": [
        {"batch": [1, 8, 32], "sequence": [1, 64, 64]},
        {"batch": [1, 8, 32], "sequence": [65, 128, 256]},
    ],
}


def artifact(place: Path, **more: Any) -> Path:
    place.mkdir()
    facts = {"schema": "onnx_folder/1", "task": "embed", "scheme": "fp16", **VALUES, **more}
    (place / "mopt.json").write_text(json.dumps(facts))
    (place / ("model.engine" if "engine" in more else "model.onnx")).write_bytes(b"model")
    if "engine" not in more:
        (place / "model.onnx.data").write_bytes(b"weights")
    return place


def test_a_graph_is_served_by_onnx_runtime(tmp_path: Path) -> None:
    made = triton.write(artifact(tmp_path / "minilm"), tmp_path / "repo", triton.Wish(device="cpu"))
    assert sorted(p.name for p in (made / "1").iterdir()) == ["model.onnx", "model.onnx.data"]
    assert (made / "config.pbtxt").read_text() == snapshot("""\
name: "minilm"
platform: "onnxruntime_onnx"
max_batch_size: 32
input [
  {
    name: "input_ids"
    data_type: TYPE_INT64
    dims: [ -1 ]
  },
  {
    name: "attention_mask"
    data_type: TYPE_INT64
    dims: [ -1 ]
  }
]
output [
  {
    name: "sentence_embedding"
    data_type: TYPE_FP32
    dims: [ 384 ]
  }
]
dynamic_batching {
  max_queue_delay_microseconds: 2000
}
instance_group [
  {
    count: 1
    kind: KIND_CPU
  }
]
""")


def test_an_engine_says_its_profiles_and_its_largest_batch(tmp_path: Path) -> None:
    made = triton.write(
        artifact(tmp_path / "minilm", engine=ENGINE), tmp_path / "repo", triton.Wish(name="m")
    )
    assert (made / "1" / "model.plan").read_bytes() == b"model"
    text = (made / "config.pbtxt").read_text()
    assert "max_batch_size: 32" in text and 'profile: [ "0", "1" ]' in text
    assert "preferred_batch_size: [ 8 ]" in text and 'platform: "tensorrt_plan"' in text
    assert "TensorRT 11.4.0" in (tmp_path / "repo" / "README.md").read_text()


def test_a_batch_that_no_profile_holds_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="up to 32, 64"):
        triton.write(artifact(tmp_path / "m", engine=ENGINE), tmp_path / "repo", triton.Wish(max_batch=64))
    assert not (tmp_path / "repo").exists()


def test_engines_of_tensorrt_for_rtx_are_refused_with_the_road_that_works(tmp_path: Path) -> None:
    engine = {**ENGINE, "library": "tensorrt_rtx", "version": "1.7.1"}
    with pytest.raises(UsageError, match="cannot load engines of TensorRT for RTX") as caught:
        triton.write(artifact(tmp_path / "m", engine=engine), tmp_path / "repo", triton.Wish())
    assert "ONNX" in caught.value.hint[0]
    assert not (tmp_path / "repo").exists()


BOUND: dict[str, Any] = {**ENGINE, "compute_capabilities": ["8.9"], "device": "NVIDIA L4"}
LATER = {**ENGINE, "version": "10.13.0", "version_compatible": True}
L4 = triton.Place(gpu="L4", compute_capability=(8, 9), tensorrt="11.4.0.106")
H200 = triton.Place(gpu="H200", compute_capability=(9, 0))


@pytest.mark.parametrize(
    ("engine", "place"),
    [
        (BOUND, L4),
        ({**BOUND, "compute_capabilities": [], "hardware_compatible": True}, H200),
        (LATER, triton.Place(tensorrt="11.4.0")),
    ],
)
def test_an_engine_that_its_target_runs_is_written(
    tmp_path: Path, engine: dict[str, Any], place: triton.Place
) -> None:
    made = triton.write(
        artifact(tmp_path / "m", engine=engine), tmp_path / "repo", triton.Wish(place=place, longest=256)
    )
    assert (made / "1" / "model.plan").is_file()


@pytest.mark.parametrize(
    ("engine", "wish", "says"),
    [
        (BOUND, triton.Wish(place=H200), "does not run on H200"),
        (BOUND, triton.Wish(device="cpu"), "which runs on a GPU"),
        (BOUND, triton.Wish(place=triton.Place(tensorrt="11.3")), "of TensorRT 11.4.0, 11.3 will run it"),
        (LATER, triton.Wish(place=triton.Place(tensorrt="10.9")), "10.9 will run it"),
        (BOUND, triton.Wish(longest=300), "300 tokens are asked, sequence ends at 256"),
    ],
)
def test_an_engine_that_its_target_cannot_run_is_refused(
    tmp_path: Path, engine: dict[str, Any], wish: triton.Wish, says: str
) -> None:
    with pytest.raises(UsageError) as caught:
        triton.write(artifact(tmp_path / "m", engine=engine), tmp_path / "repo", wish)
    assert says in caught.value.message
    assert caught.value.hint
    assert not (tmp_path / "repo").exists()


def test_batches_are_those_that_every_profile_holds(tmp_path: Path) -> None:
    engine = {**ENGINE, "profiles": [{"batch": [1, 8, 32]}, {"batch": [1, 2, 4]}]}
    made = triton.write(artifact(tmp_path / "m", engine=engine), tmp_path / "repo", triton.Wish())
    assert "max_batch_size: 4\n" in (made / "config.pbtxt").read_text()


@pytest.mark.parametrize("name", ["../up", "a b", 'x"', ""])
def test_a_name_that_is_a_path_or_breaks_the_file_is_refused(tmp_path: Path, name: str) -> None:
    place = artifact(tmp_path / ("m" if name else "n n"))
    with pytest.raises(UsageError, match="no name for a model"):
        triton.write(place, tmp_path / "repo", triton.Wish(name=name or None))


def test_a_folder_without_facts_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no artefact"):
        triton.write(tmp_path, tmp_path / "repo", triton.Wish())
    (tmp_path / "mopt.json").write_text("[]")
    with pytest.raises(UsageError, match="cannot be read"):
        triton.write(tmp_path, tmp_path / "repo", triton.Wish())

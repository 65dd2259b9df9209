"""Folders with engines: planned by their profiles, refused with the reason where this machine cannot run one."""

import json
from pathlib import Path
from typing import Any

import pytest

from model_optimizer.core import Gpu, Host, HostError, Plan, UsageError, plugins
from model_optimizer.serve import Wish, engine_files, resolve

ENGINES = plugins.load_all("model_optimizer.engines")
ENGINE: dict[str, Any] = {
    "library": "tensorrt_rtx",
    "version": "1.7.1.116",
    "compute_capabilities": ["8.6", "8.9"],
    "profiles": [
        {"batch": [1, 8, 32], "sequence": [1, 40, 64]},
        {"batch": [1, 2, 4], "sequence": [65, 128, 256]},
    ],
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "model.engine").write_bytes(b"engine")
    return written(tmp_path)


def written(folder: Path, task: str = "embed", **more: Any) -> Path:
    facts = {"task": task, "scheme": "fp16", "engine": {**ENGINE, **more}}
    (folder / "mopt.json").write_text(json.dumps(facts))
    return folder


def host(*capabilities: tuple[int, int]) -> Host:
    return Host(gpus=tuple(Gpu(name="card", compute_capability=c) for c in capabilities))


def planned(folder: Path, wish: Wish | None = None, on: Host | None = None) -> Plan:
    return resolve(str(folder), wish or Wish(), on or host((8, 9)), engines=ENGINES, schemes={}).plan


def test_a_machine_without_a_gpu_says_so(folder: Path) -> None:
    with pytest.raises(HostError, match="none here") as caught:
        planned(folder, on=host())
    assert caught.value.exit_code == 3
    assert caught.value.cause == (f"`{folder.name}` was built by TensorRT for RTX 1.7.1.116",)


def test_another_gpu_is_named(folder: Path) -> None:
    with pytest.raises(HostError) as caught:
        planned(folder, on=host((9, 0)))
    assert caught.value.reference == "engine-of-another-device"
    assert caught.value.cause == ("it was built for compute capability 8.6, 8.9", "the GPU here has 9.0")


def test_an_engine_of_tensorrt_is_compared_with_the_gpu_unless_it_is_hardware_compatible(
    folder: Path,
) -> None:
    bound: dict[str, Any] = {
        "library": "tensorrt",
        "version": "11.4.0.106",
        "compute_capabilities": ["9.0"],
        "device": "H200",
    }
    with pytest.raises(HostError) as caught:
        planned(written(folder, **bound))
    assert caught.value.reference == "engine-of-another-device"
    assert "--to tensorrt" in caught.value.hint[0]
    assert planned(folder, on=host((9, 0))).engine == "tensorrt"
    free: dict[str, Any] = {**bound, "compute_capabilities": [], "hardware_compatible": True}
    assert planned(written(folder, **free)).engine == "tensorrt"
    with pytest.raises(HostError, match="does not run on the GPU"):
        planned(folder, on=host((7, 5)))


def test_another_version_is_named_before_anything_starts(folder: Path) -> None:
    engine_files.require_version(folder, "TensorRT for RTX", "1.7.1.116")
    with pytest.raises(HostError) as caught:
        engine_files.require_version(folder, "TensorRT for RTX", "1.8.0.3")
    assert (caught.value.exit_code, caught.value.reference) == (3, "engine-of-another-version")
    more: dict[str, Any] = {"library": "tensorrt", "version": "10.13.0", "version_compatible": True}
    written(folder, **more)
    engine_files.require_version(folder, "TensorRT", "11.4.0.106")


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("max_model_len", "257", "257 tokens are asked, sequence ends at 256"),
        ("max-num-seqs", "33", "33 requests at once are asked, batch ends at 32"),
    ],
)
def test_what_no_profile_holds_is_refused(folder: Path, name: str, value: str, says: str) -> None:
    with pytest.raises(UsageError) as caught:
        planned(folder, Wish(settings={name: value}))
    assert says in caught.value.message
    assert caught.value.hint


def test_batches_are_what_the_profiles_take(folder: Path) -> None:
    plan = planned(folder)
    assert (plan.engine, plan.format, plan.scheme) == ("tensorrt_rtx", "tensorrt_rtx_engine", "fp16")
    assert {s.name: s.value for s in plan.settings} == {
        "max_batch_size": "32",
        "batch_timeout_ms": "2",
        "max_batched_tokens": "2048",
    }


@pytest.mark.parametrize(
    ("library", "task", "job"),
    [
        ("tensorrt", "embed", "serve_embed"),
        ("tensorrt", "vision", "serve_tensors"),
        ("tensorrt_rtx", "rerank", "serve_embed"),
    ],
)
def test_our_server_gets_the_engine(folder: Path, library: str, task: str, job: str) -> None:
    plan = planned(
        written(folder, task, library=library), Wish(settings={"max-num-seqs": "3", "max-model-len": "50"})
    )
    launch = ENGINES[library].launch(plan, 8123)
    assert (launch.environment, launch.job) == (library, job)
    wanted = {"backend": library, "model": str(folder), "max_batch_size": 3, "max_model_len": 50}
    assert wanted.items() <= launch.request.items()


def test_an_engine_has_one_library_and_one_scheme(folder: Path) -> None:
    for wish in (Wish(engine="onnxruntime"), Wish(scheme="int8")):
        with pytest.raises(UsageError, match="and nothing else"):
            planned(folder, wish)


def test_an_engine_without_weights_and_one_of_a_language_model_are_refused(folder: Path) -> None:
    with pytest.raises(UsageError, match="stripped of its weights"):
        planned(written(folder, weights="stripped"))
    with pytest.raises(UsageError, match="this one is for `generate`"):
        planned(written(folder, "generate"))


def test_a_foreign_engine_is_unknown(folder: Path) -> None:
    (folder / "mopt.json").write_text("{}")
    with pytest.raises(UsageError) as caught:
        planned(folder)
    assert caught.value.reference == "engine-unknown"

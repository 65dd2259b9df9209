"""Engine files are refused with the reason: no GPU, another GPU, another version."""

import json
from pathlib import Path

import pytest

from model_optimizer.core import Gpu, Host, HostError, UsageError
from model_optimizer.serve import Wish, resolve
from model_optimizer.serve.engine_files import refusal

ENGINE = {"library": "tensorrt_rtx", "version": "1.7.1.116", "compute_capabilities": ["8.6", "8.9"]}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "model.engine").write_bytes(b"engine")
    (tmp_path / "mopt.json").write_text(json.dumps({"task": "embed", "engine": ENGINE}))
    return tmp_path


def host(*capabilities: tuple[int, int]) -> Host:
    return Host(gpus=tuple(Gpu(name="card", compute_capability=c) for c in capabilities))


def test_a_machine_without_a_gpu_says_so(folder: Path) -> None:
    with pytest.raises(HostError, match="none here") as caught:
        resolve(str(folder), Wish(), host(), engines={}, schemes={})
    assert caught.value.exit_code == 3
    assert caught.value.cause == (f"`{folder.name}` was built by TensorRT for RTX 1.7.1.116",)


def test_another_gpu_is_named(folder: Path) -> None:
    error = refusal(folder, host((9, 0)))
    assert error.reference == "engine-of-another-device"
    assert error.cause == ("the GPU here has 9.0",)


def test_another_version_is_named(folder: Path) -> None:
    error = refusal(folder, host((8, 9)), installed="1.6.0")
    assert error.reference == "engine-of-another-version"
    assert "1.7.1.116, 1.6.0 is installed" in error.message


def test_where_it_could_run_the_way_is_told(folder: Path) -> None:
    error = refusal(folder, host((8, 9)))
    assert isinstance(error, UsageError) and error.reference == "engine-not-served"


def test_a_foreign_engine_is_unknown(tmp_path: Path) -> None:
    (tmp_path / "mopt.json").write_text("{}")
    assert refusal(tmp_path, host((8, 9))).reference == "engine-unknown"

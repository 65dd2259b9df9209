"""The original checkpoint as an artefact: its format, its scheme, a digest that is true to its content."""

import json
import os
from pathlib import Path

import pytest

from model_optimizer.core import Artifact, UsageError, digest
from model_optimizer.system import models
from model_optimizer.system.models import checkpoint
from model_optimizer.system.models import spec as building
from model_optimizer.system.models.config import Config
from model_optimizer.testing.checkpoints import TINY_LLAMA, layout, write_folder


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MOPT_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    return tmp_path / "home"


def tiny(folder: Path, dtype: str = "BF16", **changes: object) -> Path:
    spec = building.build(Config(dict(TINY_LLAMA)), name="tiny", provenance="test")
    return write_folder(folder / "m", {**TINY_LLAMA, **changes}, layout(spec, dtype))


def artifact(folder: Path) -> Artifact:
    return models.checkpoint_artifact(models.read(str(folder)))


@pytest.mark.parametrize(("dtype", "scheme"), [("BF16", "bf16"), ("F16", "fp16"), ("F32", "fp32")])
def test_the_scheme_is_the_format_that_is_stored(tmp_path: Path, dtype: str, scheme: str) -> None:
    """config.json says bfloat16 throughout; the headers know better."""
    folder = tiny(tmp_path, dtype)
    found = artifact(folder)
    assert (found.format, found.scheme, found.task) == ("safetensors", scheme, "generate")
    assert found.bytes == (folder / "model.safetensors").stat().st_size
    assert found.digest == digest.of_path(folder)
    assert found.made_from is None
    assert found.path == str(folder)


@pytest.mark.parametrize(
    ("said", "scheme"),
    [
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, "fp8_block"),
        ({"quant_method": "hqq"}, "hqq"),
    ],
)
def test_a_quantized_checkpoint_has_its_own_scheme(tmp_path: Path, said: object, scheme: str) -> None:
    assert artifact(tiny(tmp_path, "F8_E4M3", quantization_config=said)).scheme == scheme


def test_the_digest_is_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tiny(tmp_path)
    first = artifact(folder).digest

    def refuse(path: Path) -> str:
        raise AssertionError("read again")

    monkeypatch.setattr(checkpoint.digest, "of_path", refuse)
    assert artifact(folder).digest == first


def test_a_change_is_noticed_though_the_size_stays(tmp_path: Path) -> None:
    folder = tiny(tmp_path)
    first = artifact(folder).digest
    file = folder / "model.safetensors"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    before = file.stat()
    file.write_bytes(content)
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns + 1))
    assert artifact(folder).digest != first


def test_a_file_that_is_added_is_noticed(tmp_path: Path) -> None:
    folder = tiny(tmp_path)
    first = artifact(folder).digest
    (folder / "tokenizer.json").write_text("{}")
    assert artifact(folder).digest != first


def test_what_is_remembered_may_be_broken_or_impossible(tmp_path: Path, home: Path) -> None:
    folder = tiny(tmp_path)
    first = artifact(folder).digest
    for file in (home / "cache" / "digests").iterdir():
        file.write_bytes(b"\xff\xfe nonsense")
    assert artifact(folder).digest == first


def test_a_cache_that_cannot_be_written_is_done_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("MOPT_HOME", str(tmp_path / "file"))
    assert artifact(tiny(tmp_path)).digest.startswith("sha256:")


def test_a_model_without_weights_here_is_no_artefact(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(TINY_LLAMA))
    with pytest.raises(UsageError, match="no weights on this machine"):
        artifact(tmp_path)
    with pytest.raises(UsageError, match="no weights on this machine") as caught:
        models.checkpoint_artifact(models.read("Qwen/Qwen3-8B", offline=True))
    assert caught.value.hint[0].startswith("hf download Qwen/Qwen3-8B ")
    with pytest.raises(UsageError, match="no weights on this machine") as caught:
        models.checkpoint_artifact(models.read(str(tmp_path / "config.json")))
    assert caught.value.hint == ("download the model, and pass its folder",)


def test_tokenizer_files(tmp_path: Path) -> None:
    folder = tiny(tmp_path)
    for name in ("tokenizer.json", "tokenizer_config.json", "README.md"):
        (folder / name).write_text("{}")
    spec = models.read(str(folder))
    assert [path.name for path in models.tokenizer_files(spec)] == ["tokenizer.json", "tokenizer_config.json"]
    assert models.tokenizer_files(models.read("Qwen/Qwen3-8B", offline=True)) == ()

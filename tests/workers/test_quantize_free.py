"""The data-free quantizer in its environment: damaged weights, a full disk, a kill, and the library's own answer."""

import json
import os
import signal
import struct
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import model_optimizer.workers as workers

pytestmark = pytest.mark.engine

WORKERS = Path(workers.__file__).parent
TINY = Path(__file__).parents[2] / "examples/models/tiny-qwen3"
FILE = "model.safetensors"
LIBRARY = """
import sys
from llmcompressor import model_free_ptq
model_free_ptq(sys.argv[1], sys.argv[2], scheme="FP8_DYNAMIC", ignore=["lm_head", "model.embed_tokens"], device="cpu")
"""


def tensors(path: Path) -> dict[str, tuple[dict[str, Any], bytes]]:
    """Name to (header entry, bytes) of a small file."""
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    return {
        name: (entry, data[8 + length + entry["data_offsets"][0] : 8 + length + entry["data_offsets"][1]])
        for name, entry in header.items()
        if name != "__metadata__"
    }


def save(path: Path, found: dict[str, tuple[dict[str, Any], bytes]]) -> None:
    header, data = {}, b""
    for name, (entry, piece) in found.items():
        header[name] = {**entry, "data_offsets": [len(data), len(data) + len(piece)]}
        data += piece
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def copy(folder: Path) -> Path:
    folder.mkdir()
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json", "generation_config.json", FILE):
        (folder / name).write_bytes((TINY / name).read_bytes())
    return folder


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return copy(tmp_path / "model")


@pytest.fixture
def shards(tmp_path: Path) -> Path:
    """The same model in three files with an index."""
    folder = copy(tmp_path / "shards")
    found = tensors(folder / FILE)
    (folder / FILE).unlink()
    names, where = sorted(found), {}
    for number in range(3):
        file = f"model-{number + 1:05d}-of-00003.safetensors"
        part = names[number::3]
        save(folder / file, {name: found[name] for name in part})
        where |= dict.fromkeys(part, file)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": where}))
    return folder


class Job:
    """One run of the worker, with everything that it reads and writes below `place`."""

    def __init__(self, python: Path, model: Path, place: Path, preset: str = "FP8_DYNAMIC") -> None:
        self.out, self.work, self.place = place / "out", place / "work", place
        self.out.mkdir(parents=True)
        request = {
            "source": str(model), "out": str(self.out), "work": str(self.work), "scheme": "fp8",
            "task": "generate", "preset": preset, "group_size": 0 if preset.startswith("FP8") else 32,
        }  # fmt: skip
        (place / "request.json").write_text(json.dumps(request))
        worker = str(WORKERS / "quantize_free.py")
        self.command = [str(python), "-P", worker, str(place / "request.json"), str(place / "result.json")]

    def start(self) -> subprocess.Popen[str]:
        return subprocess.Popen(self.command, stderr=subprocess.PIPE, text=True)

    def run(self, *prefix: str) -> dict[str, Any]:
        done = subprocess.run(
            [*prefix, *self.command], stderr=subprocess.PIPE, text=True, timeout=200, check=False
        )
        self.said = done.stderr
        return json.loads((self.place / "result.json").read_text())


@pytest.mark.parametrize("name", ["model.layers.3.mlp.up_proj.weight", "model.norm.weight"])
def test_numbers_that_are_not_finite(
    llm_compressor_env_python: Path, model: Path, tmp_path: Path, name: str
) -> None:
    found = tensors(model / FILE)
    entry, data = found[name]
    found[name] = (entry, data[:-2] + b"\xc0\x7f")  # a NaN of bfloat16
    save(model / FILE, found)
    job = Job(llm_compressor_env_python, model, tmp_path / "job")
    error = job.run()["error"]
    assert error["reference"] == "broken-checkpoint"
    assert error["message"] == f"`{name}` holds numbers that are not finite"
    assert list(job.out.iterdir()) == []
    assert not (job.work / FILE).exists()


def test_a_full_disk(llm_compressor_env_python: Path, model: Path, tmp_path: Path) -> None:
    job = Job(llm_compressor_env_python, model, tmp_path / "job")
    error = job.run("bash", "-c", 'ulimit -f 3000; exec "$@"', "limited")["error"]
    assert error["reference"] == "disk-full"
    assert list(job.out.iterdir()) == []
    assert not (job.work / FILE).exists()


def test_a_killed_job_goes_on_behind_the_last_finished_file(
    llm_compressor_env_python: Path, shards: Path, tmp_path: Path
) -> None:
    whole = Job(llm_compressor_env_python, shards, tmp_path / "whole")
    whole.run()
    job = Job(llm_compressor_env_python, shards, tmp_path / "killed")
    process = job.start()
    first = job.work / "model-00001-of-00003.safetensors"
    for _ in until(lambda: first.exists() or process.poll() is not None):
        pass
    process.send_signal(signal.SIGKILL)
    process.communicate()
    finished = sorted(path.name for path in job.work.glob("*.safetensors"))
    assert finished, "it was killed before anything was done"
    assert len(finished) < 3, "it was killed too late to say anything"
    stamp = first.stat().st_mtime_ns

    result = job.run()
    assert f"{len(finished)} of 3 files were finished before" in job.said
    assert "error" not in result
    assert (job.out / first.name).stat().st_mtime_ns == stamp
    for path in sorted(whole.out.iterdir()):
        assert (job.out / path.name).read_bytes() == path.read_bytes(), path.name
    index = json.loads((job.out / "model.safetensors.index.json").read_text())
    assert "model.layers.0.mlp.up_proj.weight_scale" in index["weight_map"]
    assert set(index["weight_map"].values()) == {path.name for path in job.out.glob("*.safetensors")}


def until(done: Any, seconds: float = 100) -> Iterator[None]:
    end = time.monotonic() + seconds
    while not done() and time.monotonic() < end:
        time.sleep(0.002)
        yield


def test_it_writes_what_the_library_writes(
    llm_compressor_env_python: Path, model: Path, tmp_path: Path
) -> None:
    job = Job(llm_compressor_env_python, model, tmp_path / "job")
    job.run()
    theirs = tmp_path / "theirs"
    subprocess.run(
        [llm_compressor_env_python, "-P", "-c", LIBRARY, model, theirs],
        check=True, capture_output=True, timeout=200, env={**os.environ, "HF_HUB_OFFLINE": "1"},
    )  # fmt: skip
    mine, wanted = tensors(job.out / FILE), tensors(theirs / FILE)
    assert set(mine) == set(wanted)
    for name, (entry, data) in wanted.items():
        assert (mine[name][0]["dtype"], mine[name][0]["shape"]) == (entry["dtype"], entry["shape"]), name
        assert mine[name][1] == data, name
    one, two = (
        json.loads((folder / "config.json").read_text())["quantization_config"]
        for folder in (job.out, theirs)
    )
    assert list(one.pop("config_groups").values()) == list(two.pop("config_groups").values())
    assert one == two


def test_blocks_that_do_not_divide_what_engines_stack(
    llm_compressor_env_python: Path, model: Path, tmp_path: Path
) -> None:
    found = tensors(model / FILE)
    name = "model.layers.0.self_attn.k_proj.weight"
    entry, data = found[name]
    found[name] = ({**entry, "shape": [64, 256]}, data[: 64 * 256 * 2])
    save(model / FILE, found)
    error = Job(llm_compressor_env_python, model, tmp_path / "job", "FP8_BLOCK").run()["error"]
    assert error["reference"] == "group-size"
    assert "64 rows" in error["message"]

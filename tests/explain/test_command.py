"""The command line: screens, JSON, exit codes, files, bad input."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from model_optimizer.core import MoptError
from model_optimizer.explain import text

from .asking import ask


def mopt(*words: str, data: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-m", "model_optimizer", "explain", *words],
        input=data,
        capture_output=True,
        check=False,
    )


def test_words_need_no_quotes() -> None:
    done = mopt("is", "GPU-Util", "the", "share", "of", "busy", "cores?")
    assert done.returncode == 0
    assert b"\nFalse.\n" in done.stdout


def test_options_of_engines_are_words_and_ours_are_ours() -> None:
    done = mopt("--max-num-seqs", "--gpu", "4060 laptop", "--engine", "vllm==0.25.1", "--json")
    found = json.loads(done.stdout)
    assert found["schema"] == "explanation/1"
    assert found["title"] == "--max-num-seqs (vLLM)"
    assert "vLLM 0.25.1 takes 256" in str(found["points"])


def test_a_whole_line_in_quotes() -> None:
    done = mopt("trtexec --onnx=m.onnx --fp16 --workspace=4096")
    assert done.returncode == 0
    assert b"trtexec --onnx=m_fp16.onnx --memPoolSize=workspace:4096" in done.stdout


def test_an_upgrade() -> None:
    done = mopt("--diff", "vllm", "0.25", "0.33")
    assert done.returncode == 0
    assert done.stdout.startswith(b"vLLM 0.25.1 -> 0.33.0\n")
    assert b"VLLM_ALLREDUCE_USE_FLASHINFER: false -> true" in done.stdout
    assert b"What can make it slower or faster:" in done.stdout
    found = json.loads(mopt("--diff", "vllm", "0.25", "0.33", "--json").stdout)
    assert found["schema"] == "changes/1"


def test_a_file_and_standard_input(tmp_path: Path) -> None:
    (tmp_path / "Dockerfile").write_text("FROM vllm/vllm-openai:v0.26.1\n")
    assert b"There is no vLLM 0.26.1" in mopt(str(tmp_path / "Dockerfile")).stdout.replace(
        b"\n         ", b" "
    )
    assert b"vllm serve X" in mopt("-", data=b"vllm serve X --swap-space 4").stdout


@pytest.mark.parametrize(
    ("words", "data", "code"),
    [
        (("",), b"", 2),
        ((), b"", 2),
        (("-",), b"x" * 300_000, 2),
        (("-",), b"\x00\x01\x02" * 100, 2),
        (("-",), b"\xff\xfe\xfd nothing of the kind", 1),
        (("--no-such-option-of-anything",), b"", 1),
        (("bananas",), b"", 1),
        (("fp8", "--gpu", "4060"), b"", 2),
        (("fp8", "--gpu", "no such card"), b"", 2),
        (("fp8", "--engine", "nothing==1"), b"", 2),
        (("fp8", "--engine", "vllm==zz"), b"", 2),
        (("vllm serve X", "--engine", "vllm==0.1.0"), b"", 2),
        (("--diff", "vllm", "0.25"), b"", 2),
        (("--diff", "vllm", "0.25", "0.25.1"), b"", 2),
        (("fp8", "--host", "/nowhere/host.json"), b"", 2),
        (("vllm serve \"unclosed 'quotes",), b"", 0),
    ],
)
def test_bad_input_has_one_clear_outcome(words: tuple[str, ...], data: bytes, code: int) -> None:
    done = mopt(*words, data=data)
    assert done.returncode == code, done.stderr
    assert b"Traceback" not in done.stderr
    if code:
        assert done.stderr.startswith(b"error[")
        assert done.stdout == b""


def test_a_host_gives_gpu_and_driver(tmp_path: Path) -> None:
    host = {"schema": "host/1", "driver_version": "535.104.05", "gpus": [{"name": "NVIDIA Nothing Known"}]}
    (tmp_path / "host.json").write_text(json.dumps(host))
    line = "docker run --gpus all -p 127.0.0.1:1:1 vllm/vllm-openai:v0.27.1 X"
    done = mopt(line, "--host", str(tmp_path / "host.json"))
    assert done.returncode == 0
    assert b"this host has 535.104.05" in done.stdout.replace(b"\n         ", b" ")
    host["gpus"] = [{"name": "NVIDIA GeForce RTX 4060 Laptop GPU"}]
    (tmp_path / "host.json").write_text(json.dumps(host))
    assert b"RTX 4060 Laptop" in mopt("fp8", "--host", str(tmp_path / "host.json")).stdout


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    path = tmp_path / "closed"
    path.write_text("vllm serve X")
    path.chmod(0)
    done = mopt(str(path))
    if done.returncode != 0:  # root reads everything
        assert done.returncode == 2
        assert b"cannot be read" in done.stderr


def test_an_error_as_json() -> None:
    done = mopt("--max-num-sqs", "--json")
    assert done.returncode == 1
    assert json.loads(done.stdout)["error"]["reference"] == "unknown-thing"


def test_escape_codes_are_never_echoed() -> None:
    hostile = b"\x1b]0;owned\x07\x1b[2Jvllm serve \x1b[31mX --foo\x9b5m \xe2\x80\xaeevil --swap-space 4"
    done = mopt("-", data=hostile)
    assert done.returncode == 0
    for bad in (b"\x1b", b"\x07", b"\x9b", b"\xe2\x80\xae"):
        assert bad not in done.stdout
        assert bad not in done.stderr
    assert b"vllm serve X" in done.stdout


def test_long_hostile_lines_end() -> None:
    for thing in (
        "(" * 90_000,
        "torch.onnx.export(" + "(" * 20_000,
        "torch.onnx.export(" + "[" * 5_000 + "]" * 5_000 + ")",
        "vllm serve x " + "--a=b " * 12_000,
        "vllm serve x " + " ".join(f"--option-{n} {n}" for n in range(4_000)),
        "A_TOKEN" * 9_000,
        "HF_TOKEN=" * 9_000,
        "\x1b[" + "1;" * 40_000,
        "FROM x\n" * 10_000,
        "services:\n" + "  image: vllm/vllm-openai\n" * 2_000,
    ):
        try:
            found = ask(thing)
        except MoptError:
            continue
        assert len(str(found)) < 10_000_000


@settings(max_examples=60, deadline=None)
@given(st.text(max_size=200))
def test_any_text_has_an_answer_or_an_error_of_ours(thing: str) -> None:
    try:
        found = ask(thing)
    except MoptError:
        return
    assert "\x1b" not in str(found.today)


@pytest.mark.parametrize(
    ("given_", "wanted"),
    [
        ("HF_TOKEN=hf_abcdefghijklmnop x", "HF_TOKEN=**** x"),
        ("-e HF_TOKEN image", "-e HF_TOKEN image"),
        ("-e HF_TOKEN --ipc=host", "-e HF_TOKEN --ipc=host"),
        ("--api-key abcdef --port 1", "--api-key **** --port 1"),
        ("--api-key=abcdef", "--api-key=****"),
        ("ENV HF_TOKEN abcdef", "ENV HF_TOKEN ****"),
        ("HF_TOKEN: abcdef", "HF_TOKEN: ****"),
        ("HF_TOKEN=${HF_TOKEN}", "HF_TOKEN=${HF_TOKEN}"),
        ("HF_TOKEN=$HF_TOKEN", "HF_TOKEN=$HF_TOKEN"),
        ("Authorization: Bearer abcdef123456", "Authorization: Bearer ****"),
        ("https://me:secret@example.org", "https://****@example.org"),
        ("sk-abcdefghijklmnop", "****"),
        ("--max-num-batched-tokens 2048", "--max-num-batched-tokens 2048"),
        ("--hf-token", "--hf-token"),
        ("time per output token", "time per output token"),
    ],
)
def test_secrets_are_masked_and_nothing_else(given_: str, wanted: str) -> None:
    assert text.masked(given_) == wanted


def test_commands_of_a_text() -> None:
    assert text.commands("$ sudo A=1 vllm serve x \\\n  --port 1 && echo hi; ls # no") == [
        ["vllm", "serve", "x", "--port", "1"],
        ["echo", "hi"],
        ["ls"],
    ]

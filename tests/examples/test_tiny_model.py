"""The committed language model: what its files say agrees, and it has learnt something."""

import json
import re
import struct
import subprocess
from math import prod
from pathlib import Path
from typing import Any

import pytest

MODELS = Path(__file__).parents[2] / "examples/models"
MODEL = MODELS / "tiny-qwen3"
MEASURE = MODELS / "make_tiny_qwen3/measure.py"


def _json(name: str) -> dict[str, Any]:
    return json.loads((MODEL / name).read_text(encoding="utf-8"))


def _header() -> dict[str, Any]:
    data = (MODEL / "model.safetensors").read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    return json.loads(data[8 : 8 + length])


def _stored_parameters() -> int:
    return sum(prod(entry["shape"]) for name, entry in _header().items() if name != "__metadata__")


def _expected_parameters(config: dict[str, Any]) -> int:
    """Parameters of a Qwen3 of this shape with tied embeddings."""
    hidden, heads, kv_heads = (
        config[key] for key in ("hidden_size", "num_attention_heads", "num_key_value_heads")
    )
    attention = 2 * hidden * config["head_dim"] * (heads + kv_heads) + 2 * config["head_dim"]
    layer = attention + 3 * hidden * config["intermediate_size"] + 2 * hidden
    return config["vocab_size"] * hidden + config["num_hidden_layers"] * layer + hidden


def test_shape_is_that_of_qwen3_with_grouped_queries() -> None:
    config = _json("config.json")
    assert config["architectures"] == ["Qwen3ForCausalLM"]
    assert config["tie_word_embeddings"] is True
    assert config["num_key_value_heads"] < config["num_attention_heads"]
    assert config["max_position_embeddings"] == 2048


def test_weights_have_as_many_parameters_as_config_card_and_training_say() -> None:
    stored = _stored_parameters()
    assert stored == _expected_parameters(_json("config.json")) == _json("training.json")["parameters"]
    assert 3_000_000 <= stored <= 6_000_000
    assert f"{stored:,}" in (MODEL / "README.md").read_text(encoding="utf-8")


def test_weights_are_whole() -> None:
    size = (MODEL / "model.safetensors").stat().st_size
    with (MODEL / "model.safetensors").open("rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
    last = max(entry["data_offsets"][1] for name, entry in _header().items() if name != "__metadata__")
    assert size == 8 + length + last == 8 + length + 2 * _stored_parameters()


def test_folder_is_small() -> None:
    assert sum(path.stat().st_size for path in MODEL.iterdir()) < 12_000_000


def test_special_tokens_agree_between_the_files() -> None:
    config, generation = _json("config.json"), _json("generation_config.json")
    settings, tokenizer = _json("tokenizer_config.json"), _json("tokenizer.json")
    ids = {token["content"]: token["id"] for token in tokenizer["added_tokens"]}
    assert ids == {"<|endoftext|>": 0, "<|im_start|>": 1, "<|im_end|>": 2}
    assert ids[settings["eos_token"]] == config["eos_token_id"]
    assert ids[settings["pad_token"]] == config["pad_token_id"] == generation["pad_token_id"]
    assert generation["eos_token_id"] == [ids["<|im_end|>"], ids["<|endoftext|>"]]
    assert len(tokenizer["model"]["vocab"]) == config["vocab_size"]
    assert "<|im_start|>" in settings["chat_template"]


def test_held_out_texts_are_many_short_and_from_every_corpus() -> None:
    content = (MODEL / "heldout.jsonl").read_text(encoding="utf-8")
    rows = [json.loads(line) for line in content.splitlines()]
    assert len(content.encode()) <= 200_000
    assert len({row["text"] for row in rows}) == len(rows) >= 150
    assert all(200 <= len(row["text"]) <= 1500 for row in rows)
    assert {row["corpus"] for row in rows} == {"python", "wordnet", "bible", "chat"}


def test_card_states_the_losses_that_training_wrote() -> None:
    card = (MODEL / "README.md").read_text(encoding="utf-8")
    row = re.search(r"\| validation loss.*\| \*\*(\d\.\d+)\*\* \| (\d\.\d+) \|", card)
    assert row
    trained = _json("training.json")
    # The card's loss is in float32, the one that training wrote is in bfloat16.
    assert float(row[1]) == pytest.approx(trained["runs"][-1]["validation_loss"]["all"], abs=0.01)
    assert float(row[2]) == pytest.approx(trained["unigram_loss"]["all"], abs=0.001)
    assert "Python Software Foundation" in (MODEL / "LICENSES.txt").read_text(encoding="utf-8")


@pytest.mark.engine
def test_model_predicts_held_out_text_far_better_than_token_frequencies(onnx_env_python: Path) -> None:
    command = [str(onnx_env_python), str(MEASURE), "--model", str(MODEL), "--texts", "16"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    measured = json.loads(done.stdout)
    assert measured["texts"] == 16
    assert measured["heldout_loss"]["all"] < measured["best_unigram_loss"] - 2.0
    # The chat template writes conversations as they were trained, and the model ends its turn.
    answer = measured["samples"][measured["chat_prompt"]]
    assert re.fullmatch(r"As a noun, river means: .+<\|im_end\|>", answer, re.DOTALL)

"""Folders from outside: each defect is one clear error, found without torch."""

import json
import struct
from pathlib import Path
from typing import Any

import pytest
from _checkpoint import check_weights, most_tokens, read_config, require_loaded, require_tokenizer
from _contract import Failure
from _sentence import read_sentence

CONFIG: dict[str, Any] = {"architectures": ["BertModel"], "model_type": "bert"}


def write_safetensors(path: Path, values: int = 4) -> Path:
    header = json.dumps({"w": {"dtype": "F32", "shape": [values], "data_offsets": [0, 4 * values]}}).encode()
    path.write_bytes(struct.pack("<Q", len(header)) + header + bytes(4 * values))
    return path


def refused(call: Any, *arguments: Any, **named: Any) -> Failure:
    with pytest.raises(Failure) as caught:
        call(*arguments, **named)
    return caught.value


def test_whole_files_are_taken(tmp_path: Path) -> None:
    write_safetensors(tmp_path / "model-1.safetensors", 4)
    write_safetensors(tmp_path / "model-2.safetensors", 6)
    index = {"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    assert check_weights(tmp_path) == 40


@pytest.mark.parametrize("cut", [1, 15, 60, -1])
def test_a_file_cut_anywhere_is_refused(tmp_path: Path, cut: int) -> None:
    path = write_safetensors(tmp_path / "model.safetensors")
    path.write_bytes(path.read_bytes()[:cut])
    failure = refused(check_weights, tmp_path)
    assert failure.reference == "broken-checkpoint"
    assert "model.safetensors" in failure.message
    assert failure.hint == ("download `model.safetensors` again",)


def test_a_header_that_lies_about_its_length_is_not_believed(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(struct.pack("<Q", 1 << 60) + b"{}")
    assert refused(check_weights, tmp_path).reference == "broken-checkpoint"


def test_a_missing_shard_is_named(tmp_path: Path) -> None:
    index = {"weight_map": {"a": "model-1-of-1.safetensors"}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    assert "model-1-of-1.safetensors" in refused(check_weights, tmp_path).message


def test_an_index_cannot_lead_out_of_the_folder(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    write_safetensors(tmp_path / "other.safetensors")
    index = {"weight_map": {"a": "../other.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    assert refused(check_weights, folder).reference == "broken-checkpoint"


def test_pickles_are_no_weights(tmp_path: Path) -> None:
    (tmp_path / "pytorch_model.bin").write_bytes(b"x")
    failure = refused(check_weights, tmp_path)
    assert failure.reference == "no-weights"
    assert "pickle" in failure.hint[0]


@pytest.mark.parametrize(
    ("content", "reference"),
    [
        ("{", "broken-checkpoint"),
        ("[]", "broken-checkpoint"),
        ("{}", "broken-checkpoint"),
        (json.dumps({**CONFIG, "quantization_config": {"quant_method": "awq"}}), "already-quantized"),
        (json.dumps({**CONFIG, "quantization_config": "fp8"}), "already-quantized"),
    ],
)
def test_configurations_that_are_refused(tmp_path: Path, content: str, reference: str) -> None:
    (tmp_path / "config.json").write_text(content)
    assert refused(read_config, tmp_path).reference == reference


def test_a_missing_config_is_one_error(tmp_path: Path) -> None:
    assert "config.json" in refused(read_config, tmp_path).message


def test_a_tokenizer_must_be_there(tmp_path: Path) -> None:
    assert refused(require_tokenizer, tmp_path).reference == "no-tokenizer"
    (tmp_path / "vocab.json").write_text("{}")
    assert refused(require_tokenizer, tmp_path).reference == "no-tokenizer"
    (tmp_path / "merges.txt").write_text("")
    require_tokenizer(tmp_path)


def test_missing_weights_are_counted_but_for_unused_ones() -> None:
    require_loaded(["pooler.dense.weight"], unused=r"(^|\.)pooler\.")
    failure = refused(require_loaded, ["a", "b", "c", "d", "pooler.x"], unused=r"(^|\.)pooler\.")
    assert "4 weights" in failure.message
    assert failure.cause == ("a, b, c ...",)


@pytest.mark.parametrize(
    ("config", "files", "wanted"),
    [
        ({"max_position_embeddings": 512}, {}, 512),
        ({"max_position_embeddings": 512}, {"sentence_bert_config.json": {"max_seq_length": 256}}, 256),
        ({"max_position_embeddings": 512}, {"tokenizer_config.json": {"model_max_length": 1e30}}, 512),
        ({"max_position_embeddings": 32768}, {"tokenizer_config.json": {"model_max_length": 8192}}, 8192),
        ({"max_position_embeddings": 514, "model_type": "roberta", "pad_token_id": 1}, {}, 512),
        ({}, {}, 512),
    ],
)
def test_the_longest_input_is_the_least_limit(
    tmp_path: Path, config: dict[str, Any], files: dict[str, Any], wanted: int
) -> None:
    for name, content in files.items():
        (tmp_path / name).write_text(json.dumps(content))
    assert most_tokens(tmp_path, config) == wanted


def sentence(folder: Path, kinds: list[str], pooling: dict[str, Any] | None = None, path: str = "1") -> Path:
    modules = [
        {"type": f"sentence_transformers.models.{k}", "path": path if k == "Pooling" else ""} for k in kinds
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1").mkdir(exist_ok=True)
    (folder / "1" / "config.json").write_text(json.dumps(pooling or {"pooling_mode_mean_tokens": True}))
    return folder


@pytest.mark.parametrize(
    ("pooling", "wanted"),
    [
        ({"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": False}, "mean"),
        ({"pooling_mode_cls_token": True}, "cls"),
        ({"pooling_mode_lasttoken": True}, "lasttoken"),
        ({"pooling_mode": "lasttoken"}, "lasttoken"),
    ],
)
def test_pooling_is_read_in_old_and_new_words(tmp_path: Path, pooling: dict[str, Any], wanted: str) -> None:
    folder = sentence(tmp_path, ["Transformer", "Pooling", "Normalize"], pooling)
    assert read_sentence(folder, CONFIG) == (wanted, True, None)


def test_normalisation_is_only_what_the_files_say(tmp_path: Path) -> None:
    assert read_sentence(sentence(tmp_path, ["Transformer", "Pooling"]), CONFIG)[1] is False


@pytest.mark.parametrize(
    ("kinds", "pooling", "word"),
    [
        (["Transformer", "Pooling", "Dense"], None, "Dense"),
        (["Transformer"], None, "pooling"),
        (["Transformer", "Pooling"], {"pooling_mode_max_tokens": True}, "max_tokens"),
        (
            ["Transformer", "Pooling"],
            {"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": True},
            "mean",
        ),
        (["Transformer", "Pooling"], {"pooling_mode": "weightedmean"}, "weightedmean"),
    ],
)
def test_what_the_graph_cannot_do_is_refused(
    tmp_path: Path, kinds: list[str], pooling: dict[str, Any] | None, word: str
) -> None:
    failure = refused(read_sentence, sentence(tmp_path, kinds, pooling), CONFIG)
    assert failure.reference == "unsupported-model"
    assert word in failure.message


def test_modules_cannot_lead_out_of_the_folder(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    sentence(folder, ["Transformer", "Pooling"], path="../..")
    assert refused(read_sentence, folder, CONFIG).reference == "broken-checkpoint"


def test_without_modules_an_encoder_is_pooled_by_mean_and_a_decoder_refused(tmp_path: Path) -> None:
    pooling, normalize, note = read_sentence(tmp_path, CONFIG)
    assert (pooling, normalize) == ("mean", False)
    assert note is not None
    for decoder in (
        {"architectures": ["Qwen3Model"], "rms_norm_eps": 1e-6},
        {"architectures": ["XForCausalLM"]},
    ):
        assert refused(read_sentence, tmp_path, decoder).reference == "unsupported-model"

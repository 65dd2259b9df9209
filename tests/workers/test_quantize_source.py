"""A checkpoint before it is quantized: every defect is one error, and what is left out has a reason."""

import json
import struct
from pathlib import Path
from typing import Any

import _quantize_source as room
import pytest
import quantize_free
from _contract import Failure

CONFIG: dict[str, Any] = {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3"}
LAYER = "model.layers.0"


def save(path: Path, tensors: dict[str, tuple[int, ...]], fill: dict[str, bytes] | None = None) -> None:
    header: dict[str, Any] = {}
    data = b""
    for name, shape in tensors.items():
        count = 2
        for side in shape:
            count *= side
        piece = (fill or {}).get(name) or bytes(count)
        header[name] = {
            "dtype": "BF16",
            "shape": shape,
            "data_offsets": [len(data), len(data) + count],
        }
        data += piece
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


TENSORS: dict[str, tuple[int, ...]] = {
    "model.embed_tokens.weight": (8, 32),
    f"{LAYER}.self_attn.q_proj.weight": (32, 32),
    f"{LAYER}.mlp.down_proj.weight": (32, 64),
    f"{LAYER}.input_layernorm.weight": (32,),
}


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(CONFIG))
    (folder / "tokenizer.json").write_text("{}")
    save(folder / "model.safetensors", TENSORS)
    return folder


def read(model: Path, **asked: Any) -> room.Source:
    return room.read_source({"source": str(model), **asked})


def failure(model: Path, **asked: Any) -> Failure:
    with pytest.raises(Failure) as caught:
        read(model, **asked)
    return caught.value


def configure(model: Path, **keys: Any) -> None:
    (model / "config.json").write_text(json.dumps(CONFIG | keys))


def test_linear_layers_are_quantized_and_tables_are_not(model: Path) -> None:
    found = read(model)
    assert [tensor.module for tensor in found.quantized] == [
        f"{LAYER}.self_attn.q_proj", f"{LAYER}.mlp.down_proj",
    ]  # fmt: skip
    assert list(found.left) == ["model.embed_tokens"]
    assert room.reasons(found) == [
        "model.embed_tokens keeps its precision: a table: it is looked up, not multiplied"
    ]
    assert room.ignored(found) == ["lm_head", "model.embed_tokens"]


@pytest.mark.parametrize(
    ("module", "word"),
    [
        ("lm_head", "head"),
        ("model.layers.0.mlp.gate", "router"),
        ("model.layers.0.mlp.shared_expert_gate", "router"),
        ("model.layers.0.block_sparse_moe.gate", "router"),
        ("model.layers.0.feed_forward.router", "router"),
        ("embeddings.word_embeddings", "table"),
        ("encoder.relative_attention_bias", "table"),
        ("pooler.dense", "one small layer"),
        ("classifier", "one small layer"),
        ("score", "one small layer"),
        ("classifier.out_proj", "one small layer"),
        ("model.visual.blocks.0.attn.qkv", "other inputs"),
        ("mtp.layers.0.mlp.up_proj", "further tokens"),
        ("model.layers.0.linear_attn.in_proj_ba", "recurrent"),
        ("model.layers.0.self_attn.indexer.wq_b", "attention"),
    ],
)
def test_what_is_sensitive_stays(module: str, word: str) -> None:
    tensor = room.Tensor(name=f"{module}.weight", file="m", dtype="BF16", shape=(32, 32), start=0, bytes=2048)
    (why,) = room.kept_modules([tensor], ()).values()
    assert word in why


@pytest.mark.parametrize(
    "module",
    [
        "model.layers.0.mlp.gate_proj",
        "model.layers.0.mlp.experts.7.up_proj",
        "encoder.layer.3.attention.output.dense",
        "encoder.layer.3.intermediate.dense",
        "model.layers.0.mlp.shared_expert.down_proj",
        "transformer.h.4.attn.c_proj",
    ],
)
def test_what_bears_it_is_quantized(module: str) -> None:
    tensor = room.Tensor(name=f"{module}.weight", file="m", dtype="BF16", shape=(32, 32), start=0, bytes=2048)
    assert room.kept_modules([tensor], ()) == {}


def test_layers_can_be_excluded_by_name(model: Path) -> None:
    for pattern in ("*.down_proj", "down_proj", f"{LAYER}.mlp.down_proj"):
        found = read(model, exclude=[pattern])
        assert found.left[f"{LAYER}.mlp.down_proj"] == f"excluded by `{pattern}`"
    assert "re:model\\.layers\\.\\d+\\.mlp\\.down_proj$" in room.ignored(found)


def test_many_layers_left_for_one_reason_are_one_line(model: Path) -> None:
    routers: dict[str, tuple[int, ...]] = {f"model.layers.{n}.mlp.gate.weight": (4, 32) for n in range(3)}
    save(model / "model.safetensors", TENSORS | routers)
    found = read(model)
    assert any(line.startswith("model.layers.*.mlp.gate (3) keeps") for line in room.reasons(found))
    assert "re:model\\.layers\\.\\d+\\.mlp\\.gate$" in room.ignored(found)


def test_nothing_left_to_quantize(model: Path) -> None:
    assert failure(model, exclude=["*"]).reference == "nothing-to-quantize"


@pytest.mark.parametrize(
    ("wished", "columns", "got"),
    [
        (128, [256, 640], 128),
        (128, [576, 1536], 64),
        (128, [32], 32),
        (0, [7], 0),
        (16, [16], 16),
    ],
)
def test_groups_divide_the_columns(wished: int, columns: list[int], got: int) -> None:
    assert room.fitting_group(wished, {f"m.{n}": width for n, width in enumerate(columns)}) == got


@pytest.mark.parametrize(("wished", "columns"), [(128, [256, 48]), (32, [48]), (16, [24])])
def test_groups_that_no_kernel_takes_are_refused(wished: int, columns: list[int]) -> None:
    """Marlin takes 32 and more; a number format has the group size that its name says."""
    with pytest.raises(Failure) as caught:
        room.fitting_group(wished, {f"m.{n}.down_proj": width for n, width in enumerate(columns)})
    assert caught.value.reference == "group-size"


def test_columns_that_no_group_divides(model: Path) -> None:
    save(model / "model.safetensors", TENSORS | {"model.layers.0.mlp.up_proj.weight": (8, 50)})
    found = failure(model, group_size=128)
    assert found.reference == "group-size"
    assert found.cause == ("`model.layers.*.mlp.up_proj` has 50",)
    assert found.hint[0] == "leave them in 16 bits: --exclude up_proj"
    assert read(model, group_size=128, exclude=["up_proj"]).group_size == 32
    assert read(model).group_size == 0


def test_a_smaller_group_is_said(model: Path) -> None:
    found = read(model, group_size=128)
    assert found.group_size == 32
    assert "groups of 32" in found.notes[0]


def test_a_corrupt_file(model: Path) -> None:
    whole = (model / "model.safetensors").read_bytes()
    (model / "model.safetensors").write_bytes(whole[:-10])
    found = failure(model)
    assert (found.reference, "cut short" in found.message) == ("broken-checkpoint", True)


def test_a_file_that_the_index_names_is_missing(model: Path) -> None:
    index = {"weight_map": dict.fromkeys(TENSORS, "model-00001-of-00002.safetensors")}
    (model / room.INDEX).write_text(json.dumps(index))
    found = failure(model)
    assert found.reference == "broken-checkpoint"
    assert "model-00001-of-00002.safetensors" in found.message


def test_a_tensor_that_the_index_names_is_missing(model: Path) -> None:
    names = dict.fromkeys([*TENSORS, "model.layers.1.mlp.up_proj.weight"], "model.safetensors")
    (model / room.INDEX).write_text(json.dumps({"weight_map": names}))
    found = failure(model)
    assert "names 1 tensors that are in no file" in found.message
    assert found.cause == ("model.layers.1.mlp.up_proj.weight",)


def test_a_quantized_checkpoint(model: Path) -> None:
    configure(model, quantization_config={"quant_method": "compressed-tensors"})
    assert failure(model).reference == "already-quantized"


def test_no_tokenizer(model: Path) -> None:
    (model / "tokenizer.json").unlink()
    assert failure(model).reference == "no-tokenizer"


def test_a_tied_head_that_is_stored_too(model: Path) -> None:
    configure(model, tie_word_embeddings=True)
    assert "the head is the embedding table (tied) and keeps its precision" in room.reasons(read(model))
    save(model / "model.safetensors", TENSORS | {"lm_head.weight": (8, 32)})
    found = read(model)
    assert "stored twice" in found.notes[0]
    assert "lm_head" in found.left
    other = {"lm_head.weight": b"\x3f" * 512}
    save(model / "model.safetensors", TENSORS | {"lm_head.weight": (8, 32)}, other)
    found = failure(model)
    assert found.reference == "broken-checkpoint"
    assert "tied" in found.message
    configure(model, tie_word_embeddings=False)
    assert "lm_head" in read(model).left


def test_what_belongs_to_the_model_comes_along(model: Path, tmp_path: Path) -> None:
    (model / "1_Pooling").mkdir()
    (model / "1_Pooling" / "config.json").write_text("{}")
    (model / "modules.json").write_text("[]")
    (model / ".secret.json").write_text("{}")
    (model / "pytorch_model.bin").write_bytes(b"x")
    (model / "2_Dense").mkdir()
    save(model / "2_Dense" / "model.safetensors", {"linear.weight": (2, 2)})
    out = tmp_path / "out"
    out.mkdir()
    (out / "config.json").write_text("mine")
    room.copy_beside(model, out)
    found = sorted(path.relative_to(out).as_posix() for path in out.rglob("*") if path.is_file())
    assert found == [
        "1_Pooling/config.json", "2_Dense/model.safetensors", "config.json", "modules.json", "tokenizer.json",
    ]  # fmt: skip
    assert (out / "config.json").read_text() == "mine"


@pytest.mark.parametrize("empty", [None, {}])
def test_an_empty_description_is_dropped_before_the_library_reads_it(model: Path, empty: Any) -> None:
    configure(model, quantization_config=empty, hidden_size=32)
    quantize_free.drop_empty_description(model)
    assert json.loads((model / "config.json").read_text()) == CONFIG | {"hidden_size": 32}

"""What is no model, or none that may be read: one clear error each, with the way out."""

import json
from contextlib import suppress
from pathlib import Path
from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from model_optimizer.core import UsageError, codec
from model_optimizer.system import models
from model_optimizer.system.models import spec as building
from model_optimizer.system.models.config import Config
from model_optimizer.testing.checkpoints import TINY_LLAMA, layout, write_folder, write_safetensors


@pytest.fixture(autouse=True)
def _no_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setenv("MOPT_OFFLINE", "1")


def refused(reference: object) -> UsageError:
    with pytest.raises(UsageError) as caught:
        models.read(str(reference))
    assert caught.value.exit_code == 2
    return caught.value


def tiny_weights() -> dict[str, tuple[str, tuple[int, ...]]]:
    return layout(building.build(Config(dict(TINY_LLAMA)), name="tiny", provenance="test"))


def tiny(folder: Path, **changes: object) -> Path:
    keys = {key: value for key, value in {**TINY_LLAMA, **changes}.items() if value is not ...}
    return write_folder(folder / "m", keys, tiny_weights())


@pytest.mark.parametrize(
    "reference", ["./nothing", "/no/such/folder", "~/no-such-model", "a/b/c", "config.json", "x.gguf/"]
)
def test_a_path_that_is_not_there(reference: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    error = refused(reference)
    assert error.message == f"there is no folder or file `{reference}`"
    assert error.hint


@pytest.mark.parametrize("reference", ["", "  ", "https://huggingface.co/Qwen/Qwen3-8B", "a\0b"])
def test_what_is_no_name(reference: str) -> None:
    assert refused(reference).hint


def test_an_unknown_id_names_the_nearest_and_the_ways_out() -> None:
    error = refused("Qwen/Qwen3-8BB")
    assert "is not in the built-in table" in error.message
    assert "Qwen/Qwen3-8B" in error.hint[0]
    assert any("pass its folder" in line for line in error.hint)
    assert any("there is no folder" in line for line in error.cause)


def test_a_revision_needs_the_hub() -> None:
    with pytest.raises(UsageError, match="at revision `abc`"):
        models.read("Qwen/Qwen3-8B", revision="abc")


def test_a_folder_has_no_revisions(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="has no revisions"):
        models.read(str(tiny(tmp_path)), revision="main")


def test_a_folder_without_config(tmp_path: Path) -> None:
    (tmp_path / "weights.txt").write_text("x")
    error = refused(tmp_path)
    assert error.cause == ("config.json is missing",)


@pytest.mark.parametrize(
    ("file", "says"),
    [
        ("model-q4.gguf", "GGUF"),
        ("adapter_config.json", "adapter (LoRA)"),
        ("model_index.json", "diffusion"),
        ("params.json", "maker's own format"),
    ],
)
def test_folders_of_another_kind(tmp_path: Path, file: str, says: str) -> None:
    (tmp_path / file).write_text("{}")
    error = refused(tmp_path)
    assert says in error.message + error.cause[0]
    assert error.hint


def test_a_gguf_file(tmp_path: Path) -> None:
    (tmp_path / "m.gguf").write_bytes(b"GGUF")
    assert "is a GGUF file" in refused(tmp_path / "m.gguf").message
    assert "is a GGUF file" in refused("nowhere/m.GGUF").message


def test_another_file(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(b"x")
    assert "is not a config.json" in refused(tmp_path / "model.safetensors").message


def test_an_adapter_beside_a_config(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(TINY_LLAMA))
    (tmp_path / "adapter_config.json").write_text("{}")
    write_safetensors(tmp_path / "adapter_model.safetensors", {"w": ("F32", (2,))})
    error = refused(tmp_path)
    assert "adapter" in error.message
    assert any("merge_and_unload" in line for line in error.hint)


@pytest.mark.parametrize(
    "file", ["pytorch_model.bin", "pytorch_model-00001-of-00002.bin", "model.pt", "consolidated.00.pth"]
)
def test_weights_as_pickle_only(tmp_path: Path, file: str) -> None:
    (tmp_path / "config.json").write_text(json.dumps(TINY_LLAMA))
    (tmp_path / file).write_bytes(b"\x80\x02")
    error = refused(tmp_path)
    assert "only as pickle" in error.message
    assert any("weights_only=True" in line for line in error.hint)
    assert any("save_file" in line for line in error.hint)


def test_pickle_beside_safetensors_does_no_harm(tmp_path: Path) -> None:
    folder = tiny(tmp_path)
    (folder / "pytorch_model.bin").write_bytes(b"\x80\x02")
    assert models.read(str(folder)).parameters_source == "header"


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("{", "Expecting"),
        ("", "Expecting"),
        ("[]", "not an object"),
        ('{"model_type": "llama", "rope_theta": NaN}', "NaN"),
        ("[" * 200_000, "nested"),
        ("\xff\xfe", "decode"),
    ],
)
def test_config_that_is_not_json(tmp_path: Path, content: str, says: str) -> None:
    (tmp_path / "config.json").write_bytes(content.encode("latin-1"))
    error = refused(tmp_path)
    assert "not valid JSON" in error.message
    assert says in error.cause[0]


def test_config_with_infinity_is_as_valid_as_python_makes_it(tmp_path: Path) -> None:
    """Mamba's configs have `time_step_limit: [0.0, Infinity]`."""
    assert models.read(str(tiny(tmp_path, time_step_limit=[0.0, float("inf")]))).layers == 2


@pytest.mark.parametrize(
    ("missing", "says"),
    [(("architectures",), "`architectures`"), (("model_type",), "`model_type`"), (("architectures", "model_type"), "`architectures` and `model_type`")],
)  # fmt: skip
def test_config_without_architecture(tmp_path: Path, missing: tuple[str, ...], says: str) -> None:
    error = refused(tiny(tmp_path, **dict.fromkeys(missing, ...)))
    assert says in error.cause[0]
    assert error.hint


def test_every_missing_field_is_named_at_once(tmp_path: Path) -> None:
    error = refused(tiny(tmp_path, hidden_size=..., vocab_size=..., num_hidden_layers=...))
    assert "does not describe a llama model completely" in error.message
    assert error.cause == ("missing: `hidden_size`, `num_hidden_layers`, `vocab_size`",)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("hidden_size", "16"),
        ("hidden_size", -16),
        ("hidden_size", 16.5),
        ("hidden_size", True),
        ("hidden_size", 10**30),
        ("hidden_size", [16]),
        ("hidden_size", float("inf")),
        ("vocab_size", 0),
        ("num_hidden_layers", 10**9),
        ("num_attention_heads", 0),
        ("num_attention_heads", 3),
        ("num_key_value_heads", 3),
        ("tie_word_embeddings", "yes"),
        ("attention_bias", 1),
    ],
)
def test_values_that_no_model_has(tmp_path: Path, field: str, value: object) -> None:
    error = refused(tiny(tmp_path, **{field: value}))
    assert "does not describe a llama model completely" in error.message
    assert error.cause[0].startswith("not understood: ")


def test_an_unknown_architecture_is_not_guessed(tmp_path: Path) -> None:
    error = refused(tiny(tmp_path, model_type="lama", architectures=["LamaForCausalLM"]))
    assert error.message == "the architecture `lama` (LamaForCausalLM) is not known here"
    assert "llama" in error.hint[0]
    assert error.reference == "model-architecture"


def test_an_unknown_purpose_is_not_guessed(tmp_path: Path) -> None:
    error = refused(tiny(tmp_path, architectures=["LlamaForTokenClassification"]))
    assert "LlamaForTokenClassification" in error.message


def test_foreign_code_is_refused(tmp_path: Path) -> None:
    code = {"AutoModelForCausalLM": "modeling_strange.StrangeForCausalLM"}
    error = refused(tiny(tmp_path, model_type="strange", architectures=["StrangeForCausalLM"], auto_map=code))
    assert error.reference == "remote-code"
    assert "never runs foreign code" in error.cause[0]


def test_foreign_code_beside_a_known_architecture_is_ignored(tmp_path: Path) -> None:
    spec = models.read(str(tiny(tmp_path, auto_map={"AutoConfig": "configuration_x.X"})))
    assert not spec.remote_code
    assert "is not used" in spec.notes[0]


def test_truncated_weights(tmp_path: Path) -> None:
    folder = tiny(tmp_path)
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-100])
    error = refused(folder)
    assert "not a whole safetensors file" in error.message
    assert "cut off" in error.cause[0]


def test_header_larger_than_the_file(tmp_path: Path) -> None:
    folder = tiny(tmp_path)
    (folder / "model.safetensors").write_bytes((10_000).to_bytes(8, "little") + b"{}")
    assert "claims 10000 bytes" in refused(folder).cause[0]


def test_a_pointer_instead_of_the_file(tmp_path: Path) -> None:
    folder = tiny(tmp_path)
    (folder / "model.safetensors").write_text(
        "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n"
    )
    assert "LFS pointer" in refused(folder).hint[0]


def test_a_missing_shard(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "m", TINY_LLAMA, tiny_weights(), shards=3)
    (folder / "model-00002-of-00003.safetensors").unlink()
    error = refused(folder)
    assert error.message.endswith("is not complete")
    assert error.cause == (
        "`model-00002-of-00003.safetensors` is missing, 1 of 3 files that the index names",
    )
    (folder / "model.safetensors.index.json").unlink()
    assert "1 of 3 files of the set" in refused(folder).cause[0]


def test_a_promise_of_the_index_that_is_not_kept(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "m", TINY_LLAMA, tiny_weights(), shards=2)
    index = folder / "model.safetensors.index.json"
    content = json.loads(index.read_text())
    content["weight_map"]["model.layers.9.extra.weight"] = "model-00001-of-00002.safetensors"
    index.write_text(json.dumps(content))
    assert "`model.layers.9.extra.weight`" in refused(folder).cause[0]


@pytest.mark.parametrize(
    "file", ["../outside.safetensors", "/etc/passwd", "a/b.safetensors", "..", "x.bin", "a\\b.safetensors"]
)
def test_an_index_that_leads_out_of_the_folder(tmp_path: Path, file: str) -> None:
    folder = tiny(tmp_path)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"w": file}}))
    assert "names a file that is refused" in refused(folder).message


@pytest.mark.parametrize("content", ["{}", '{"weight_map": {}}', '{"weight_map": {"w": 3}}'])
def test_a_broken_index(tmp_path: Path, content: str) -> None:
    folder = tiny(tmp_path)
    (folder / "model.safetensors.index.json").write_text(content)
    assert "not a valid index" in refused(folder).message


def test_several_models_in_one_folder(tmp_path: Path) -> None:
    folder = tiny(tmp_path)
    (folder / "model.safetensors").rename(folder / "one.safetensors")
    write_safetensors(folder / "two.safetensors", {"w": ("F32", (2,))})
    assert "several safetensors files and no index" in refused(folder).message


def test_broken_sentence_transformers_files(tmp_path: Path) -> None:
    folder = tiny(tmp_path)
    (folder / "modules.json").write_text("{")
    assert "modules.json" in refused(folder).message


def test_layers_of_different_sizes_are_not_averaged(tmp_path: Path) -> None:
    error = refused(tiny(tmp_path, per_layer_config={"1": {"num_key_value_heads": 1}}))
    assert "per_layer_config" in error.cause[0]


CONFIGS: list[dict[str, object]] = list(
    json.loads((Path(__file__).parent.parent / "data" / "models" / "configs.json").read_text()).values()
)
ODD = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2**70) | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@given(data=st.data(), keys=st.sampled_from(CONFIGS), condensed=st.booleans())
@settings(max_examples=300, deadline=None)
def test_no_value_of_any_key_breaks_the_reader(
    data: st.DataObject, keys: dict[str, object], condensed: bool
) -> None:
    """Hostile configs are understood or refused; they never end in a traceback, and never take long."""
    inner = [key for key in ("text_config", "vision_config") if isinstance(keys.get(key), dict)]
    chosen = data.draw(st.sampled_from([key for key in keys if key != "as"]))
    changed = {**keys, chosen: data.draw(ODD)}
    if inner and chosen not in inner:
        place = data.draw(st.sampled_from(inner))
        part = cast("dict[str, object]", keys[place])
        changed[place] = {**part, data.draw(st.sampled_from(list(part))): data.draw(ODD)}
    with suppress(UsageError):
        spec = building.build(Config(changed, condensed=condensed), name="a/b", provenance="test")
        assert spec.parameters > 0
        codec.loads(codec.dumps(spec), type(spec))

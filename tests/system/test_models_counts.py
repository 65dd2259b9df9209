"""Parameter counts from config.json against the modules that transformers builds on the meta device.

parameter_counts.json was written from configs.json by tools/count_parameters.py; its first lines say with what.
"""

import json
from pathlib import Path

import pytest

from model_optimizer.core import ModelSpec
from model_optimizer.facts import models as table
from model_optimizer.system import models
from model_optimizer.system.models import spec as building
from model_optimizer.system.models.config import Config

DATA = Path(__file__).parent.parent / "data" / "models"
CONFIGS: dict[str, dict[str, object]] = json.loads((DATA / "configs.json").read_text())
COUNTS: dict[str, dict[str, int]] = json.loads((DATA / "parameter_counts.json").read_text())["counts"]


@pytest.fixture(autouse=True)
def _nothing_downloaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setenv("MOPT_OFFLINE", "1")


def spec_of(name: str) -> ModelSpec:
    keys = {key: value for key, value in CONFIGS[name].items() if key != "as"}
    return building.build(Config(keys), name=name, provenance="test")


def true_count(spec: ModelSpec, counts: dict[str, int]) -> int:
    """What the spec should say: an embedding model has no head, an encoder that is not described is left out."""
    head = counts["head"] if spec.task == "embed" else 0
    encoder = counts["vision"] if spec.vision_parameters is None else 0
    return counts["parameters"] - head - encoder


@pytest.mark.parametrize("name", CONFIGS)
def test_every_weight_is_counted(name: str) -> None:
    spec, counts = spec_of(name), COUNTS[name]
    assert spec.parameters == true_count(spec, counts)
    assert spec.vision_parameters in (None, counts["vision"])
    if not spec.architecture.endswith("ForMaskedLM"):
        assert spec.head_parameters == (0 if spec.task == "embed" else counts["head"])
    assert spec.embedding_parameters >= counts["token_embedding"]


@pytest.mark.parametrize("name", CONFIGS)
def test_weights_add_up(name: str) -> None:
    spec = spec_of(name)
    assert sum(w.parameters for w in spec.weights if w.role != "mtp") == spec.parameters
    assert sum(w.parameters for w in spec.weights if w.role == "mtp") == spec.mtp_parameters
    assert 0 < spec.active_parameters <= spec.parameters
    assert sum(group.layers for group in spec.groups) <= spec.layers


@pytest.mark.parametrize("name", table.ids())
def test_the_built_in_table_is_counted_within_a_thousandth(name: str) -> None:
    spec = models.read(name)
    assert spec.provenance.startswith("the built-in table")
    counted = COUNTS.get(f"{name} (with its vision_config)", COUNTS.get(name))
    if counted is None:
        return
    want = true_count(spec, counted)
    assert abs(spec.parameters - want) <= 0.001 * want


# Billions as their makers publish them: in all, and for one token where experts make a difference.
PUBLISHED = {
    "deepseek-ai/DeepSeek-V3": (671, 37),
    "deepseek-ai/DeepSeek-V2": (236, 21),
    "deepseek-ai/DeepSeek-V2-Lite": (15.7, 2.4),
    "moonshotai/Kimi-K2-Instruct": (1026, 32),
    "Qwen/Qwen3-30B-A3B": (30.5, 3.3),
    "Qwen/Qwen3-235B-A22B": (235, 22),
    "mistralai/Mixtral-8x7B-v0.1": (46.7, 12.9),
    "mistralai/Mixtral-8x22B-v0.1": (141, 39),
    "openai/gpt-oss-120b": (116.8, 5.1),
    "openai/gpt-oss-20b": (20.9, 3.6),
    "zai-org/GLM-4.5": (355, 32),
    "meta-llama/Llama-4-Scout-17B-16E-Instruct (with its vision_config)": (109, 17),
    "meta-llama/Llama-4-Maverick-17B-128E-Instruct": (402, 17),
    "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16": (31.6, 3.6),
    "ibm-granite/granite-4.0-h-small": (32, 9),
    "ai21labs/Jamba-v0.1": (52, 12),
    "google/gemma-4-26B-A4B (with a vision_config)": (25.8, 3.8),
    "Qwen/Qwen3-8B": (8.2, 8.2),
    "meta-llama/Meta-Llama-3.1-405B": (405, 405),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_sizes(name: str) -> None:
    """Rounded by their makers, some of whom leave the input embedding out of what is active."""
    spec, (total, active) = spec_of(name), PUBLISHED[name]
    assert spec.parameters / 1e9 == pytest.approx(total, rel=0.01)
    without_table = spec.active_parameters - spec.embedding_parameters
    nearest = min(abs(n / 1e9 - active) for n in (spec.active_parameters, without_table))
    assert nearest <= 0.06 * active


def test_further_token_layers_are_counted_apart() -> None:
    """DeepSeek says 671B for the model and 14B for its module that predicts further tokens."""
    spec = spec_of("deepseek-ai/DeepSeek-V3")
    assert spec.mtp_parameters / 1e9 == pytest.approx(13.5, abs=0.1)
    assert (spec.parameters + spec.mtp_parameters) / 1e9 == pytest.approx(684.5, abs=0.1)

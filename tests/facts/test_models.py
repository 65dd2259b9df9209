"""Known models by id, without a network."""

import pytest

from model_optimizer.core import UsageError
from model_optimizer.facts import models, read


def test_a_hub_id_gives_the_keys_of_config_json() -> None:
    config = models.find("Qwen/Qwen3-8B")
    assert config is not None
    assert config["architectures"] == ["Qwen3ForCausalLM"]
    assert (config["hidden_size"], config["num_hidden_layers"], config["head_dim"]) == (4096, 36, 128)


@pytest.mark.parametrize("asked", ["qwen/qwen3-8b", "Qwen3-8B", "QWEN3-8b"])
def test_case_and_a_missing_organisation_are_forgiven(asked: str) -> None:
    fact = models.fact(asked)
    assert fact is not None
    assert fact.id == "Qwen/Qwen3-8B"


@pytest.mark.parametrize(
    "asked",
    ["nobody/Qwen3-8B", "", "/", "a/b/c", "../models/Qwen--Qwen3-8B", "./config.json", "a b", "ａ/ｂ"],
)
def test_what_is_not_a_known_id_is_none(asked: str) -> None:
    assert models.find(asked) is None


def test_an_id_of_modelscope_has_the_shape_of_the_original() -> None:
    fact = models.fact("ZhipuAI/GLM-4.5")
    assert fact is not None
    assert fact.like == "zai-org/GLM-4.5"
    assert fact.config == models.find("zai-org/GLM-4.5")
    assert not fact.checked


def test_an_alias_overrides_what_differs() -> None:
    tuned, base = models.find("Qwen/Qwen2.5-7B-Instruct"), models.find("Qwen/Qwen2.5-7B")
    assert tuned is not None
    assert base is not None
    assert tuned["max_position_embeddings"] == 32768
    assert {**tuned, "max_position_embeddings": base["max_position_embeddings"]} == base


def test_unknown_models_name_the_nearest() -> None:
    with pytest.raises(UsageError, match="there is no model") as caught:
        models.get("Qwen/Qwen3-9B")
    assert "Qwen/Qwen3-8B" in caught.value.hint[0]


def test_each_file_is_named_after_its_model() -> None:
    assert len(models.ids()) > 80
    for model in models.ids():
        fact = models.get(model)
        assert fact.id == model
        assert fact.checked == (fact.provenance == "published config"), model
        assert {"architectures", "model_type", "hidden_size", "num_hidden_layers"} <= set(fact.config), model
        kinds = fact.config.get("layer_types")
        assert kinds is None or len(list(kinds)) == fact.config["num_hidden_layers"], model  # type: ignore[call-overload]


def test_aliases_lead_to_models_and_hide_none() -> None:
    known = {model.lower() for model in models.ids()}
    seen: set[str] = set()
    for alias in models.aliases():
        assert alias.like in models.ids()
        assert alias.id.lower() not in known | seen
        seen.add(alias.id.lower())


def test_a_lookup_opens_one_file(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    real = read.json
    monkeypatch.setattr(read, "json", lambda path, kind: opened.append(path.name) or real(path, kind))
    models.find("Qwen/Qwen3-8B")
    assert opened == ["Qwen--Qwen3-8B.json"]

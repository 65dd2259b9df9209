"""Which release serves which architecture, on the registries that ship."""

import pytest

from model_optimizer.core import UsageError
from model_optimizer.facts import architectures, models
from model_optimizer.facts.versions import key


def test_old_and_new_architectures_of_vllm() -> None:
    served = architectures.releases_of("Qwen3ForCausalLM")
    assert [s.version for s in served] == list(architectures.versions())
    assert key(served[0].version) <= key("0.8.5")
    assert served[0].tasks == ("generate",)
    newer = architectures.releases_of("Qwen3_5ForConditionalGeneration")
    assert key(newer[0].version) > key("0.14.1")
    assert newer[-1].tasks == ("multimodal",)
    assert architectures.releases_of("NeverForCausalLM") == ()


def test_embedding_reranking_and_the_general_backend() -> None:
    newest = architectures.release(architectures.versions()[-1])
    assert newest.serves("BertModel") == ("embed",)
    assert "rerank" in newest.serves("BertForSequenceClassification")
    assert architectures.releases_of("GPTBigCodeForCausalLM")[-1].general
    assert "MotifForCausalLM" in newest.removed
    assert newest.serves("MotifForCausalLM") == ()


@pytest.mark.parametrize("engine", architectures.engines())
def test_each_registry_is_filed_under_its_release(engine: str) -> None:
    assert len(architectures.versions(engine)) >= 5
    before = 0
    for version in architectures.versions(engine):
        registry = architectures.release(version, engine=engine)
        assert (registry.engine, registry.version) == (engine, version)
        assert len(registry.tasks["generate"]) > 40
        known = {name for names in registry.tasks.values() for name in names}
        assert set(registry.general) <= known
        assert not known & set(registry.removed)
        assert len(known) > before * 0.9, f"{version} lost many: was a table missed?"
        before = len(known)


def test_models_that_we_know_are_served_by_some_release() -> None:
    for model in models.ids():
        fact = models.get(model)
        names = fact.config["architectures"]
        assert isinstance(names, list)
        assert architectures.releases_of(names[0]), f"{model}: {names[0]} is in no registry"


def test_what_was_not_read_is_an_error() -> None:
    with pytest.raises(UsageError, match=r"architectures of vllm 0\.0\.1 were not read"):
        architectures.release("0.0.1")
    with pytest.raises(UsageError, match="architectures of `frob` were not read"):
        architectures.releases_of("X", engine="frob")

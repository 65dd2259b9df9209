"""A real checkpoint of llm-compressor: linted, then compared in PyTorch and behind the real vLLM (CPU build)."""

import json
from pathlib import Path

import pytest

from model_optimizer import api
from model_optimizer.core import Verdict
from model_optimizer.flow.quality import PYTORCH, Wishes
from model_optimizer.quantize.run import Asked, Target, Wanted
from model_optimizer.verify.sensitivity import sensitive

pytestmark = pytest.mark.engine

TINY = Path(__file__).parents[2] / "examples/models/tiny-qwen3"


def silent(_text: str, _share: float | None) -> None: ...


@pytest.fixture(scope="module")
def made(llm_compressor_env_python: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    del llm_compressor_env_python
    asked = Asked(wanted=Wanted(), target=Target())
    found = api.plan_quantization(str(TINY), scheme="fp8", to=None, asked=asked)
    out = tmp_path_factory.mktemp("made") / "fp8"
    api.quantize(found, out, progress=silent)
    return out


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("texts") / "texts.jsonl"
    lines = (TINY / "heldout.jsonl").read_text().splitlines()[:12]
    file.write_text("\n".join(lines))
    return file


@pytest.fixture(scope="module")
def tasks(texts: Path) -> Path:
    """Which of two words follows: the one that does in the text, or a word that never would."""
    file = texts.with_name("tasks.jsonl")
    rows = [json.loads(line)["text"].split() for line in texts.read_text().splitlines()]
    file.write_text(
        "\n".join(
            json.dumps({"context": " ".join(row[:12]), "choices": [f" {row[12]}", " zqxj"], "answer": 0})
            for row in rows
        )
    )
    return file


def check(candidate: Path, texts: Path, wishes: Wishes) -> Verdict:
    return api.verify(
        str(candidate), str(TINY), layer="quality", texts=texts, max_texts=12, progress=silent, wishes=wishes
    )


def got(verdict: Verdict, metric: str) -> float:
    return next(c.got for c in verdict.comparisons if c.metric == metric) or 0.0


def test_the_linter_finds_nothing_in_it(made: Path) -> None:
    verdict = api.verify(str(made), layer="format", progress=silent, wishes=Wishes(engine="vllm_cpu"))
    assert verdict.outcome == "pass", verdict.because


@pytest.mark.slow
def test_in_pytorch_with_its_layers(made: Path, texts: Path) -> None:
    verdict = check(made, texts, Wishes(engine=PYTORCH, sensitivity=True, max_tokens=64))
    assert 0.8 < got(verdict, "recovery") < 1.02
    assert "nothing is said of an engine's kernels" in (verdict.because or "")
    errors = [c.got for c in verdict.comparisons if c.metric == "layer_error"]
    assert len(errors) == 7
    assert errors[0] == 0
    assert all(0 < (error or 0) < 1 for error in errors[1:])
    costs = [c.got or 0.0 for c in verdict.comparisons if c.metric == "sensitivity"]
    assert len(costs) == 42
    assert costs == sorted(costs, reverse=True)
    assert costs[0] > 0
    assert sensitive(verdict)[0].startswith("model.layers.")


@pytest.mark.slow
def test_behind_the_engine_that_serves_it(
    made: Path, texts: Path, tasks: Path, vllm_cpu_env_python: Path
) -> None:
    del vllm_cpu_env_python
    verdict = check(made, texts, Wishes(engine="vllm_cpu", max_tokens=64, tasks=tasks))
    assert 0.8 < got(verdict, "recovery") < 1.02
    assert got(verdict, "kl") > 0.001
    assert got(verdict, "task_accuracy_reference") > 0.8
    assert verdict.subject == str(made)
    assert "vLLM (CPU build)" in (verdict.because or "")

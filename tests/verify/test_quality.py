"""Layer `quality`: limits by hand, places in the context, tasks, retrieval, and what to leave alone."""

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from model_optimizer.cli.app import app
from model_optimizer.cli.render_verify import verdict_text
from model_optimizer.core import Comparison, Gate, UsageError, Verdict
from model_optimizer.flow import quality as flow
from model_optimizer.verify import quality, quality_retrieval, quality_tasks
from model_optimizer.verify.judged import Judged, reported
from model_optimizer.verify.outputs import Outputs
from model_optimizer.verify.quality_tasks import Item
from model_optimizer.verify.sensitivity import sensitive, together
from model_optimizer.verify.texts import Sample, Texts

from . import made

GATE = Gate(recovery=0.9, top1=0.8, cosine=0.9, rank=0.8, source="test")
LOGITS = [3.0, 1.0, 0.0, -1.0]


def by_name(found: Sequence[Judged]) -> dict[str, Comparison]:
    return {j.comparison.metric: j.comparison for j in found}


def pair(folder: Path, damaged_from: int, length: int = 200) -> tuple[Outputs, Outputs]:
    """A reference and a candidate whose answers are others from a place in the context on."""
    tokens = [[0] * (length + 1)] * 2
    good = [[LOGITS] * length] * 2
    bad = [[LOGITS if at < damaged_from else [2.0, 1.5, 0.0, -1.0] for at in range(length)]] * 2
    return (
        made.logits(folder / "reference", good, tokens),
        made.logits(folder / "candidate", bad, tokens, of=good),
    )


def test_results_by_place_show_where_the_context_hurts(tmp_path: Path) -> None:
    """Damage from the 128th token on leaves the first stretches whole."""
    found = by_name(quality.by_place([pair(tmp_path, damaged_from=127)]))
    assert set(found) == {
        "recovery@1-31", "kl@1-31", "recovery@32-127", "kl@32-127", "recovery@128-511", "kl@128-511", "kl_p99",
    }  # fmt: skip
    assert found["recovery@32-127"].got == pytest.approx(1)
    assert found["kl@32-127"].got == pytest.approx(0, abs=1e-6)
    assert (found["recovery@128-511"].got or 1) < 0.9
    assert (found["kl@128-511"].got or 0) > 0.05
    assert found["recovery@1-31"].samples == 62
    assert all(c.outcome == "pass" and c.wanted == "reported" for c in found.values())


def test_a_place_with_few_positions_is_left_out(tmp_path: Path) -> None:
    found = by_name(quality.by_place([pair(tmp_path, damaged_from=0, length=40)]))
    assert "recovery@1-31" in found
    assert "recovery@32-127" not in found


def test_limits_named_by_hand() -> None:
    assert quality.changed(GATE, {}) is GATE
    changed = quality.changed(GATE, {"recovery": 0.99})
    assert (changed.recovery, changed.top1) == (0.99, 0.8)
    assert changed.source.startswith("named by the user")
    with pytest.raises(UsageError, match="there is no limit `speed`"):
        quality.changed(GATE, {"speed": 1})
    for value in (1.5, -0.1, float("nan")):
        with pytest.raises(UsageError, match="between 0 and 1"):
            quality.changed(GATE, {"recovery": value})


def test_a_gate_that_is_no_number_is_refused() -> None:
    done = CliRunner().invoke(
        app, ["verify", "x", "--against", "y", "--layer", "quality", "--gate", "recovery"]
    )
    assert isinstance(done.exception, UsageError)
    assert done.exception.hint[0] == "--gate recovery=0.95"


def test_an_extra_can_only_make_a_verdict_worse() -> None:
    verdict = Verdict(layer="quality", subject="x", outcome="pass", because="fine")
    fine = quality.with_judged(verdict, [reported("a", 1.0, samples=1, where="")], "tasks")
    assert (fine.outcome, fine.because) == ("pass", "fine")
    bad = Judged(comparison=Comparison(metric="task_recovery", got=0.5, wanted=">= 0.9", outcome="fail"))
    worse = quality.with_judged(verdict, [bad], "tasks")
    assert worse.outcome == "fail"
    assert worse.because == "fine; tasks: task_recovery is 0.5, wanted >= 0.9"


# Tasks: `[1, 2]` is the context, the token behind it the choice.
ITEMS = tuple(Item(context="c", choices=("a", "b"), answer=number % 2) for number in range(40))


def answered(path: Path, right: Sequence[bool]) -> Outputs:
    """What a model says that chooses the right continuation of each question, or the other."""
    texts: list[list[list[float]]] = []
    tokens: list[list[int]] = []
    for item, good in zip(ITEMS, right, strict=True):
        wanted = item.answer if good else 1 - item.answer
        row = [4.0 if token == wanted else 0.0 for token in (0, 1, 2)]
        flat = [0.0, 0.0, 0.0]
        texts += [[flat], [flat, row], [flat, row]]
        tokens += [[1, 2], [1, 2, 0], [1, 2, 1]]
    return made.logits(path, texts, tokens)


def test_a_model_chooses_the_likeliest_continuation(tmp_path: Path) -> None:
    found = answered(tmp_path / "x", [True] * 40)
    assert quality_tasks.chosen(ITEMS, found) == [item.answer for item in ITEMS]


def test_tasks_are_judged_against_what_the_reference_knows(tmp_path: Path) -> None:
    """30 of 40 right became 15: half of what there was is left."""
    extra = quality_tasks.extra(ITEMS)
    assert len(extra.groups) == 40
    assert [s.text for s in extra.groups[0]] == ["c", "ca", "cb"]
    reference = answered(tmp_path / "r", [n < 30 for n in range(40)])
    candidate = answered(tmp_path / "c", [n < 15 for n in range(40)])
    found = by_name(extra.judge([(reference, candidate)], GATE))
    assert found["task_recovery"].got == pytest.approx(0.5)
    assert found["task_recovery"].outcome == "fail"
    assert found["task_accuracy_reference"].got == pytest.approx(0.75)
    assert found["task_same"].got == pytest.approx(25 / 40)


def test_few_questions_prove_little_though_none_changed(tmp_path: Path) -> None:
    extra = quality_tasks.extra(ITEMS)
    reference = answered(tmp_path / "r", [n < 30 for n in range(40)])
    for limit, outcome in ((0.95, "undecided"), (0.85, "pass")):
        gate = dataclasses.replace(GATE, recovery=limit)
        equal = by_name(extra.judge([(reference, reference)], gate))["task_recovery"]
        assert equal.outcome == outcome
        assert equal.interval is not None and 0.85 < equal.interval[0] < 0.9


def test_a_question_that_was_cut_before_its_choices_is_left_out(tmp_path: Path) -> None:
    item = (Item(context="c", choices=("a", "b"), answer=0),)
    cut = made.logits(tmp_path / "x", [[LOGITS]] * 3, [[1, 2]] * 3)
    assert quality_tasks.chosen(item, cut) == [None]
    found = by_name(quality_tasks.compare([0], [None], [None], GATE))
    assert "1 questions are too long" in (found["task_accuracy"].where or "")


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("{", "line 1 is not JSON"),
        ('{"context": "x", "choices": ["a"], "answer": 0}', "the answer is not among"),
        ('{"context": "x", "choices": ["a", "b"], "answer": 2}', "the answer is not among"),
        ('{"context": "x", "choices": ["a", 3], "answer": 0}', "is no question"),
        ('{"context": "", "choices": ["a", "b"], "answer": 0}', "is no question"),
        ("", "holds no question"),
    ],
)
def test_wrong_task_files(tmp_path: Path, line: str, says: str) -> None:
    file = tmp_path / "tasks.jsonl"
    file.write_text(line)
    with pytest.raises(UsageError, match=says):
        quality_tasks.read(file)


def test_retrieval_counts_documents_that_are_still_found(tmp_path: Path) -> None:
    """Two queries of twelve lose their document to its neighbour."""
    pairs = tuple(Sample(text=f"q{n}", pair=f"d{n}") for n in range(12))
    extra = quality_retrieval.extra(Texts(source="mine", samples=pairs))
    assert extra is not None
    assert [g[0].text for g in extra.groups][:2] == ["q0", "q1"]
    axes = [[float(i == n) for i in range(12)] for n in range(12)]
    good = made.vectors(tmp_path / "r", axes + axes)
    turned = [axes[(n + 1) % 12] if n < 2 else axes[n] for n in range(12)]
    bad = made.vectors(tmp_path / "c", turned + axes)
    found = by_name(extra.judge([(good, bad)], GATE))
    assert found["recall@1"].got == pytest.approx(10 / 12)
    assert found["recall_recovery"].got == pytest.approx(10 / 12)
    assert "12 found became 10" in (found["recall_recovery"].where or "")
    assert by_name(extra.judge([(good, good)], GATE))["recall_recovery"].outcome == "pass"
    assert quality_retrieval.extra(Texts(source="few", samples=pairs[:3])) is None


def swept(**costs: float) -> Verdict:
    rows = flow.layer_comparisons(
        {
            "layers": [{"name": "layer 0", "error": 0.1}, {"name": "layer 1", "error": None}],
            "sensitivity": [{"name": name.replace("__", "."), "kl": kl} for name, kl in costs.items()],
            "tokens": 100,
        }
    )
    return Verdict(layer="quality", subject="x", reference="r", outcome="pass", comparisons=rows, because="b")


def test_the_worst_layers_are_named_with_those_they_are_stacked_with() -> None:
    verdict = swept(
        l__0__self_attn__q_proj=0.5, l__1__mlp__down_proj=0.3, l__2__x=0.01, l__3__x=0.01, l__4__x=0.01,
        l__5__x=0.01, l__6__x=0.01, l__7__x=0.01,
    )  # fmt: skip
    assert sensitive(verdict) == (
        "l.0.self_attn.q_proj", "l.0.self_attn.k_proj", "l.0.self_attn.v_proj", "l.1.mlp.down_proj",
    )  # fmt: skip
    assert sensitive(swept(a=0.0, b=0.0)) == ()
    assert together("model.layers.3") == ("model.layers.3.*",)
    screen = verdict_text(verdict)
    assert "What each of 8 layers costs alone" in screen
    assert "mopt quantize MODEL --scheme mixed --exclude l.0.self_attn.q_proj --exclude" in screen
    assert "layer_error" not in screen


def test_tasks_are_for_models_that_generate(tmp_path: Path) -> None:
    file = tmp_path / "t.jsonl"
    file.write_text(json.dumps({"context": "c", "choices": ["a", "b"], "answer": 1}))
    assert quality_tasks.read(file) == (Item(context="c", choices=("a", "b"), answer=1),)


def test_retrieval_that_is_left_out_is_said() -> None:
    few = Texts(source="few", samples=tuple(Sample(text=f"q{n}", pair=f"d{n}") for n in range(3)))
    case: Any = SimpleNamespace(reference=SimpleNamespace(task="embed"), texts=few)
    said: list[str] = []
    assert flow._extras(case, flow.Wishes(), lambda text, _share: said.append(text)) == ()
    assert said == ["no retrieval: it needs 10 pairs of query and document"]
